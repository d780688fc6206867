"""The arms of a comparison, what makes two of them comparable, and which of them a second call runs again."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from jobs import _compare_train, compare
from jobs._cli import run_command
from jobs._compare_arm import kept_record, place, trained_facts
from jobs._compare_arms import arm_config, check_comparable, chosen_arms, identity, known_arms
from jobs._compare_train import ArmFailed, train_arm
from pipeline.config import ROOT, UserError, load_config
from pipeline.rewards.registry import STRATEGIES

PRESET = str(ROOT / "infra/presets/compare.yaml")


def config(*overrides):
    return load_config(PRESET, ["run.name=c", *overrides])


def test_every_reward_is_an_arm_and_decs_has_its_ablations():
    arms = known_arms()
    assert set(arms) == {*STRATEGIES, "decs-no-curriculum", "decs-no-decoupling"}
    assert {name for name, arm in arms.items() if arm.curriculum} == {"decs", "decs-no-decoupling"}
    assert all(arm.reward == name for name, arm in arms.items() if name in STRATEGIES)


def test_chosen_arms_keep_their_order_and_come_once():
    assert [arm.name for arm in chosen_arms(" grpo, decs,grpo")] == ["grpo", "decs"]
    assert [arm.name for arm in chosen_arms("all")] == list(known_arms())
    assert [arm.name for arm in chosen_arms("-kimi,all,-l1_max,decs")] == [
        name for name in known_arms() if name not in ("kimi", "l1_max")
    ]
    with pytest.raises(UserError, match="'decs-no-curiculum'; did you mean 'decs-no-curriculum'"):
        chosen_arms("grpo,decs-no-curiculum")
    with pytest.raises(UserError, match="'-kimmi'; did you mean 'kimi'"):
        chosen_arms("all,-kimmi")
    for nothing in (",", "-kimi", "kimi,-kimi"):
        with pytest.raises(UserError, match="names no arm"):
            chosen_arms(nothing)


@pytest.mark.parametrize(
    "name,reward,rule,kappa",
    [
        ("grpo", "grpo", "off", 0.0),
        ("length_penalty", "length_penalty", "off", 0.0),
        ("decs", "decs", "constant", 0.75),
        ("decs-no-curriculum", "decs", "off", 0.0),
        ("decs-no-decoupling", "length_penalty", "constant", 0.75),
    ],
)
def test_an_arm_changes_reward_and_curriculum_and_nothing_else(name, reward, rule, kappa):
    cfg = config("reward.r_plus=1.2", "publish.every=3", "publish.endpoint=true")
    made = arm_config(cfg, known_arms()[name], seed=4)
    assert (made.reward.name, made.curriculum.rule, made.curriculum.kappa_start) == (reward, rule, kappa)
    assert made.reward.r_plus == (1.2 if reward == "decs" else 1.1)
    assert (made.curriculum.max_rounds, made.curriculum.min_batch_share) == (1, 0.01)
    assert made.run.seed == 4 and made.publish.every == made.run.steps == 30 and not made.publish.endpoint
    same = {"run", "reward", "curriculum", "publish", "comparison"}
    assert made.model_dump(exclude=same) == cfg.model_dump(exclude=same)


def test_reward_options_of_the_comparison_reach_both_arms_of_a_reward():
    cfg = config("comparison.reward_options.length_penalty.gamma=0.5")
    for name in ("length_penalty", "decs-no-decoupling"):
        assert arm_config(cfg, known_arms()[name], 0).reward.options == {"gamma": 0.5}
    assert arm_config(cfg, known_arms()["grpo"], 0).reward.options == {}


def test_all_arms_of_the_preset_can_run():
    check_comparable(config(), chosen_arms("all"))


@pytest.mark.parametrize(
    "override,said",
    [
        ("curriculum.max_rounds=2", "curriculum.max_rounds is 2"),
        ("storage.uri=s3://bucket/x", "keeps its arms in a folder"),
        ("problems.held_out=[]", "problems.held_out"),
        ("comparison.reward_options.grop.x=1", "'grop'; did you mean 'grpo'"),
        ("comparison.reward_options.grpo.x=1", "arm grpo: reward 'grpo' has no option 'x'"),
        ("curriculum.kappa_rate=0.3", "arm decs: curriculum.kappa_rate is 0.3"),
    ],
)
def test_what_cannot_be_compared_is_refused(override, said):
    with pytest.raises(UserError, match=said):
        check_comparable(config(override), chosen_arms("grpo,decs"))


def test_unknown_arm_and_bad_seeds_are_mistakes(capsys):
    def run(*argv):
        return run_command("compare", "", lambda cfg, args: pytest.fail("started"), compare._arguments, argv=argv)

    assert run("--arms", "grop") == 2 and "did you mean 'grpo'" in capsys.readouterr().err
    for seeds in ("0", "²", "-1", "1.5", "1001", "9" * 5000):
        assert run("--seeds", seeds) == 2
        assert "--seeds takes a whole number from 1 to 1000, got" in capsys.readouterr().err
    assert run("--preset", "compair") == 2 and "infra/presets/compare.yaml" in capsys.readouterr().err


def test_preset_is_short_for_a_file_and_compare_is_the_default():
    seen = []

    def run(*argv):
        return run_command("compare", "", lambda cfg, args: seen.append(cfg) or 0, compare._arguments, argv=argv)

    assert run() == run("--preset", "tiny") == run("--config", str(ROOT / "infra/presets/tiny.yaml")) == 0
    assert [cfg.curriculum.max_rounds for cfg in seen] == [1, 2, 2]


def test_identity_knows_config_and_model_but_no_names_and_places(tmp_path):
    decs = known_arms()["decs"]
    made = arm_config(config(), decs, 0)
    moved = arm_config(config("run.name=d", f"storage.uri={tmp_path}", "tracking.uri=sqlite:///x.db"), decs, 0)
    assert identity(made, "m") == identity(moved, "m")
    others = [arm_config(config(), decs, 1), arm_config(config("learner.lr=1e-5"), decs, 0)]
    others.append(arm_config(config("problems.held_out.0.size=7"), decs, 0))
    others.append(arm_config(config(), known_arms()["grpo"], 0))
    found = {identity(cfg, "m") for cfg in (made, *others)} | {identity(made, "n")}
    assert len(found) == 6


def at(tmp_path, *overrides, name="decs"):
    return place(config(*overrides), known_arms()[name], 0, tmp_path, "m", "sqlite:///x.db")


def test_an_arm_has_a_folder_and_a_run_of_its_own(tmp_path):
    found = at(tmp_path)
    assert found.name == "decs-s0" and found.folder == tmp_path / "arms" / "decs-s0"
    assert found.cfg.run.name == "c.decs-s0" and found.cfg.storage.uri == str(found.folder)
    assert found.cfg.tracking.uri == "sqlite:///x.db"
    start = place(config(), None, 3, tmp_path, "m", "")
    assert start.name == "start-s3" and start.cfg.run.seed == 3


def test_a_finished_arm_is_kept_and_another_configs_is_refused(tmp_path):
    found = at(tmp_path)
    assert kept_record(found) is None
    found.folder.mkdir(parents=True)
    (found.folder / "result.json").write_text(json.dumps({"identity": found.identity, "arm": "decs"}))
    assert kept_record(found)["arm"] == "decs"
    with pytest.raises(UserError, match="made with another config or start model .* new run.name"):
        kept_record(at(tmp_path, "learner.lr=1e-5"))


def test_facts_of_a_training_are_summed_over_its_steps():
    history = {
        "rollout/traces_sampled": {0: 24.0, 1: 24.0},
        "rollout/tokens_sampled": {0: 900.0, 1: 700.0},
        "curriculum/groups_kept": {0: 3.0, 1: 5.0},
        "rollout/accuracy": {0: 0.5, 1: 0.75},
    }
    trained = {"ledger": {"trained": 8, "dropped": 4}, "issued_digest": "i", "digest": "d"}
    found = trained_facts(trained, history)
    assert (found["traces"], found["tokens_sampled"], found["kept_share"]) == (48, 1600, 8 / 12)
    assert found["curves"]["accuracy"] == [[0, 0.5], [1, 0.75]] and found["curves"]["nrp_share_tokens"] == []


def child(monkeypatch, code):
    """Instead of a training, `code` runs in the child process."""
    real = _compare_train.subprocess.Popen
    monkeypatch.setattr(
        _compare_train.subprocess, "Popen", lambda command, **rest: real([sys.executable, "-c", code], **rest)
    )


def test_steps_are_shown_and_the_log_is_kept(tmp_path, monkeypatch):
    child(monkeypatch, "import os; print('step 1/2  accuracy 0.5'); print('address', os.environ['RAY_ADDRESS'])")
    steps = []
    train_arm(config(), tmp_path / "arm", "1.2.3.4:5", steps.append)
    assert steps == ["step 1/2  accuracy 0.5"]
    assert (tmp_path / "arm/train.log").read_text().splitlines()[1] == "address 1.2.3.4:5"
    assert load_config(str(tmp_path / "arm/config.yaml")) == config()


def test_a_training_that_fails_tells_its_last_word(tmp_path, monkeypatch):
    child(monkeypatch, "import sys; print('error: no room', file=sys.stderr); sys.exit(2)")
    with pytest.raises(ArmFailed, match=r"error: no room \(exit 2; log: .*train.log\)"):
        train_arm(config(), tmp_path, "", lambda line: None)


def test_an_interrupt_ends_the_child(tmp_path, monkeypatch):
    child(monkeypatch, "import os, time; print('step 1/1 ', os.getpid(), flush=True); time.sleep(60)")
    pids = []

    def first_step(line):
        pids.append(int(line.split()[2]))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train_arm(config(), tmp_path, "", first_step)
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_failed_arm_does_not_end_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compare, "cluster", lambda namespace: __import__("contextlib").nullcontext())
    monkeypatch.setattr("ray.get_runtime_context", lambda: type("Context", (), {"gcs_address": "here"}))

    def run(found, engine, tracker, address, on_step):
        if found.arm.name == "grpo":
            raise ArmFailed("no room")
        return {"measured": {"accuracy": 0.5, "tokens_mean": 60.0, "nrp_share": None}, "seconds": {"train": 3.0}}

    monkeypatch.setattr(compare, "run_arm", run)
    records = {}
    rest = [at(tmp_path, name="grpo"), at(tmp_path, name="decs")]
    assert compare._run_rest(config(), rest, records, None) == [{"arm": "grpo", "seed": 0, "why": "no room"}]
    assert list(records) == ["decs-s0"]
    out = capsys.readouterr().out
    assert "1/2 grpo-s0: FAILED: no room" in out and "2/2 decs-s0: accuracy 0.500, tokens 60.0, NRP -" in out
