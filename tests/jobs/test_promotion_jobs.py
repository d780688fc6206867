"""The commands that change what is served, over an endpoint, a registry and engines in memory."""

import json
import os
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from jobs import canary, promote, rollback
from jobs._released import find
from jobs._runs import held
from pipeline.config import ROOT, UserError
from pipeline.tracking import RegisteredVersion, TrackingError
from pipeline.weights import read_manifest
from serve.client import SwapRefused, SwapTimeout
from serve.policy import Policy, Wanted
from tests.evaluation.fake_endpoint import written

PRESET = str(ROOT / "infra" / "presets" / "tiny.yaml")
TINY = ROOT / "infra" / "models" / "tiny"
SMALL = ["problems.held_out.0.size=6", "problems.held_out.1.size=6", "gate.min_problems=12", "gate.parity_limit=0.5"]
QUICK = ["gate.soak_s=0.02", "gate.look_every_s=0.01", "gate.min_canary_requests=4", "gate.deadline_s=1"]


class FakeRegistry:
    """Four versions; the champion is 1, the one before it 4."""

    name = "policy"

    def __init__(self):
        self.named = {"champion": 1, "previous": 4, "candidate": 2}
        self.tags, self.log, self.away = {}, [], False

    def get(self, number):
        if number > 4:
            raise TrackingError(f"no version {number}")
        return RegisteredVersion("policy", number, 10 + number, f"{number}" * 64, 0, f"/stored/v{number}", "run", "c")

    def of_snapshot(self, version, digest):
        every = map(self.get, range(1, 5))
        return [one for one in every if one.version == version and one.digest.startswith(digest)]

    def aliases(self):
        return dict(self.named)

    def resolve(self, alias):
        return self.get(self.named[alias]) if alias in self.named else None

    def served(self):
        return self.resolve("champion")

    def set_alias(self, alias, number):
        if self.away:
            raise TrackingError("MLflow is away")
        self.log.append((alias, number))
        if alias == "champion" and self.named.get("champion") != number:
            self.named["previous"] = self.named.get("champion")
        self.named[alias] = number

    def tag(self, number, tags):
        self.tags.setdefault(number, {}).update(tags)


class FakeLive:
    """Two replicas that answer four requests each at every look, a canary's in `canary_seconds`."""

    def __init__(self, registry):
        self.policy, self.canary, self.log, self.registry = policy(1), None, [], registry
        self.count, self.canary_seconds, self.refuses = 0, 1.0, False

    def address(self):
        return SimpleNamespace(url="http://127.0.0.1:9", model_id="policy", replicas=self.states())

    def wanted(self):
        return Wanted(self.policy, self.canary, int(self.canary is not None))

    def states(self):
        self.count += 4
        holders = [(self.canary or self.policy), self.policy]
        return {f"r{i}": self._state(held, i == 0 and self.canary) for i, held in enumerate(holders)}

    def _state(self, held, is_canary):
        seconds = self.canary_seconds if is_canary else 1.0
        tokens = {"output_tokens": self.count * 9, "squared_tokens": self.count * 81}
        served = {"requests": self.count, "failed": 0, "seconds": [seconds] * self.count, **tokens}
        served = {held.fingerprint: served}
        return {
            "version": held.version,
            "digest": held.digest,
            "served": served,
            "refusals": 0,
            "last_refusal": None,
        }

    def start_canary(self, wanted, replicas):
        self.log.append(f"start v{wanted.version} on {replicas}")
        if self.refuses:
            raise SwapRefused("replica r0: NaN")
        self.canary = wanted

    def end_canary(self):
        self.log.append("end")
        self.canary = None

    def swap(self, wanted):
        self.log.append(f"swap v{wanted.version}")
        if self.refuses:
            raise SwapRefused("replica r0: NaN")
        self.policy, self.canary = wanted, None
        return 0.5


def policy(number):
    return Policy(10 + number, f"/kept/v{number}", f"{number}" * 64)


class FakeEngine:
    """Right answers, or what `texts[version]` makes of them."""

    started, texts = [], {}

    def __init__(self, cfg, folder, cpus=None, version=0, digest=""):
        self.version = version
        self.started.append(version)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def fingerprint(self, token_ids):
        return [-1.0] * (len(token_ids) - 1)

    def replies(self, cfg, tokenizer, wanted):
        make = self.texts.get(self.version, lambda gold: f"Wait</think>\nThe answer is \\boxed{{{gold}}}.")
        yield [written(problem, make(problem.gold), self.version, sample) for problem, sample in wanted]


@pytest.fixture
def world(monkeypatch, tmp_path):
    registry = FakeRegistry()
    live = FakeLive(registry)
    engine = type("Engine", (FakeEngine,), {"started": [], "texts": {}})

    def released(cfg, found, *, check=True):
        kept = Policy(found.version, str(TINY), found.digest)
        name = f"policy {found.number} ({kept.fingerprint})"
        return SimpleNamespace(registered=found, policy=kept, number=found.number, name=name)

    reference = SimpleNamespace(token_ids=[1, 2, 3], distance=lambda logprobs: 0.0)
    kept, pruned = [], []
    monkeypatch.setattr("jobs._released.release", released)
    monkeypatch.setattr("jobs._released.open_registry", lambda cfg: registry)
    monkeypatch.setattr("jobs._released.tidy", lambda cfg, registry, served: pruned.extend(served))
    monkeypatch.setattr("jobs._replicas.LiveEndpoint", lambda cfg, dashboard: live)
    monkeypatch.setattr("jobs._replicas.Replayed", FakeReplay)
    monkeypatch.setattr("jobs._ray.cluster", lambda namespace: nullcontext())
    monkeypatch.setattr("pipeline.loop.evaluate.EvaluationEngine", engine)
    monkeypatch.setattr("jobs._gate.reference_of", lambda folder: reference)

    def keep(cfg, registry, candidate, against, outcome):
        kept.append(outcome)

    monkeypatch.setattr("jobs._gate_record.keep", keep)

    def run(command, *argv):
        fixed = ["--dashboard", "http://127.0.0.1:9", f"storage.uri={tmp_path}", "judge.name=exact", *SMALL, *QUICK]
        last = [text for text in argv if text == "problems.held_out=[]"]
        return command.command([*(text for text in argv if text not in last), "--config", PRESET, *fixed, *last])

    return SimpleNamespace(
        run=run, registry=registry, live=live, engine=engine, kept=kept, pruned=pruned, folder=tmp_path
    )


class FakeReplay:
    sent = failed = 0

    def __init__(self, cfg, address, problems, headers):
        assert len(problems) == 12

    @contextmanager
    def running(self):
        yield


def test_a_good_candidate_is_promoted_and_the_champion_measured_only_once(world, capsys):
    assert world.run(promote, "--candidate", "2") == 0
    assert world.live.log == ["start v12 on 1", "swap v12"] and world.registry.log == [("champion", 2)]
    assert world.registry.named == {"champion": 2, "previous": 1, "candidate": 2}
    assert world.engine.started == [11, 12] and world.pruned == [str(TINY)]
    out = capsys.readouterr().out
    assert "policy 2 (v12-22222222) was promoted in 0.5 s: all limits hold" in out and "accuracy 1 [1, 1]" in out
    assert world.run(promote, "--candidate", "3") == 0
    assert world.engine.started == [11, 12, 13]  # the new champion's figures are those it was promoted with
    assert world.registry.named["previous"] == 2


@pytest.mark.parametrize(
    "make,reason",
    [
        (lambda gold: "</think>\nThe answer is \\boxed{99}.", "accuracy 0"),
        (lambda gold: f"{'Wait ' * 7}Wait</think>\nThe answer is \\boxed{{{gold}}}.", "tokens"),
    ],
)
def test_a_bad_candidate_gets_no_traffic(world, capsys, make, reason):
    world.engine.texts[12] = make
    assert world.run(promote) == 1  # the alias candidate
    assert world.live.log == [] and world.registry.log == []
    assert "was refused: " in capsys.readouterr().out and reason in world.kept[0].reason


def test_a_slow_candidate_is_taken_back(world, capsys):
    world.live.canary_seconds = 2.0
    assert world.run(promote) == 1
    assert world.live.log == ["start v12 on 1", "end"] and world.registry.log == []
    assert "was rolled back: latency ratio p50 2 [2, 2], allowed 1.5" in capsys.readouterr().out


def test_a_registry_that_is_away_at_the_end_takes_it_back(world, capsys):
    world.registry.away = True
    assert world.run(promote) == 1
    assert world.live.policy.version == 11 and world.live.log[-2:] == ["swap v12", "swap v11"]
    assert "was rolled back: MLflow is away" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv,told",
    [
        (["--candidate", "1"], "number 1 of the registry is the champion already"),
        (["--candidate", "9"], "version '9' cannot be looked up"),
        (["--candidate", "none"], "no version with alias 'none'"),
        (["problems.held_out=[]"], "the gate needs problems.held_out"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_is_touched(world, capsys, argv, told):
    assert world.run(promote, *argv) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and world.live.log == [] and world.engine.started == []


def test_a_canary_of_another_command_stays(world, capsys):
    world.live.canary = policy(3)
    assert world.run(promote) == 2 and "a canary of v13-33333333 is on" in capsys.readouterr().err
    assert world.live.log == []


def test_without_a_champion_the_absolute_limits_decide(world, capsys):
    world.registry.named = {"candidate": 2}
    assert world.run(promote) == 0 and world.engine.started == [12]
    assert "there is no champion to compare with" in capsys.readouterr().out and world.registry.named["champion"] == 2


def test_a_rollback_swaps_at_once_and_exchanges_the_aliases(world, capsys):
    assert world.run(rollback, "--reason", "answers in verse") == 0
    assert world.live.log == ["swap v14"] and world.registry.named == {"champion": 4, "previous": 1, "candidate": 2}
    assert (
        world.registry.tags[1]["rollback.reason"] == "answers in verse" and world.registry.tags[1]["rollback.to"] == "4"
    )
    assert "rolled back to policy 4 (v14-44444444): swapped in 0.50 s, " in capsys.readouterr().out
    assert world.run(rollback) == 0 and world.registry.named["champion"] == 1  # and back
    assert world.run(rollback, "--to", "3") == 0 and world.registry.named["previous"] == 1


def test_a_rollback_that_a_replica_refuses_moves_no_alias(world, capsys):
    world.live.refuses = True
    assert world.run(rollback) == 1 and world.registry.log == []
    assert "error: not rolled back to policy 4 (v14-44444444): replica r0: NaN" in capsys.readouterr().err


def test_a_rollback_goes_before_the_registry(world, capsys):
    world.registry.away = True
    assert world.run(rollback) == 1 and world.live.policy.version == 14
    error = capsys.readouterr().err
    assert "it is served, but the registry does not say so" in error and "run again with --to 4" in error


def test_a_canary_by_hand(world, capsys):
    assert world.run(canary, "start", "--candidate", "previous") == 0
    assert world.live.canary.version == 14 and "is on 1 of 2 replicas" in capsys.readouterr().out
    assert world.run(canary, "end") == 0
    assert world.live.canary is None and "all 2 replicas serve v11-11111111" in capsys.readouterr().out
    assert world.registry.log == []
    world.live.refuses = True
    assert world.run(canary, "start") == 1 and "NaN" in capsys.readouterr().err  # the client has taken it back
    assert world.run(canary, "start", "--replicas", "0") == 2


def test_a_second_canary_leaves_the_first_one_alone(world, capsys):
    assert world.run(canary, "start", "--candidate", "3") == 0
    assert world.run(canary, "start") == 2 and world.live.canary.version == 13 and "end" not in world.live.log
    assert "a canary of v13-33333333 is on; end it first" in capsys.readouterr().err


def test_a_canary_that_is_not_confirmed_is_taken_back_and_a_mistake_changes_nothing(world, capsys):
    def unconfirmed(wanted, replicas):
        world.live.canary = wanted
        raise SwapTimeout("waiting for r0")

    world.live.start_canary = unconfirmed
    assert world.run(canary, "start") == 1 and world.live.log == ["end"] and world.live.canary is None

    def refused(wanted, replicas):
        raise UserError("a canary of 2 would leave none")

    world.live.start_canary = refused
    assert world.run(canary, "start", "--replicas", "2") == 2 and world.live.log == ["end"]


@pytest.mark.parametrize("command,argv", [(promote, []), (rollback, []), (canary, ["start"]), (canary, ["end"])])
def test_one_command_at_a_time_changes_what_is_served(world, capsys, command, argv):
    with held(world.folder / "gate"):
        assert world.run(command, *argv) == 2
    error = capsys.readouterr().err
    assert f"another command changes what the endpoint serves (process {os.getpid()})" in error
    assert "run.name" not in error and world.live.log == []


def test_a_measurement_says_that_it_starts_a_ray_of_its_own(world, capsys):
    assert world.run(promote) == 0 and "starting a Ray of this command's own" in capsys.readouterr().out


def test_versions_are_found_by_number_or_alias():
    registry = FakeRegistry()
    assert find(registry, "3").number == 3 and find(registry, "previous").number == 4
    with pytest.raises(UserError, match="no version with alias 'x'"):
        find(registry, "x")


def test_versions_are_found_by_their_snapshot():
    registry = FakeRegistry()
    assert find(registry, "v13").number == 3 and find(registry, f"v12-{'2' * 8}").number == 2
    with pytest.raises(UserError, match="no registered version is of the snapshot v3; a registry number"):
        find(registry, "v3")
    registry.of_snapshot = lambda version, digest: [registry.get(2), registry.get(1)]
    with pytest.raises(UserError, match=r"several .* v8: give one of the numbers 2 \(v12-22222222\), 1 \("):
        find(registry, "v8")


def test_local_copies_outlive_storage(tmp_path, monkeypatch):
    from jobs._released import release
    from pipeline.config import load_config
    from pipeline.storage import open_storage

    cfg = load_config(None, [f"storage.uri={tmp_path}"])
    store = open_storage(cfg.storage)
    store.put_folder(TINY, "run/snapshots/v0")
    manifest = read_manifest(TINY)
    found = RegisteredVersion(
        "policy", 1, manifest.version, manifest.digest, 0, store.uri("run/snapshots/v0"), "r", "c"
    )
    first = release(cfg, found)
    assert read_manifest(first.policy.folder).digest == manifest.digest and first.policy.folder.startswith(
        str(tmp_path)
    )
    gone = RegisteredVersion("policy", 1, manifest.version, manifest.digest, 0, "/nowhere/v0", "r", "c")
    assert release(cfg, gone).policy == first.policy
    wrong = RegisteredVersion("policy", 1, manifest.version + 1, manifest.digest, 0, found.uri, "r", "c")
    with pytest.raises(UserError, match="the registry names version"):
        release(cfg, wrong)


def test_what_is_kept_of_a_decision():
    from serve.promotion.check import Check
    from serve.promotion.record import metrics_of, rows_of, table_text, tags_of

    checks = [Check("accuracy", 0.5, (0.4, 0.6), 0.01), Check("parity (nats)", 0.1, None, 0.01, True), Check("x", None)]
    assert tags_of("refused", "why", checks, "now", "policy 1") == {
        "gate.accuracy": "0.5 [0.4, 0.6], allowed 0.01",
        "gate.parity_nats": "0.1, allowed 0.01",
        "gate.decision": "refused",
        "gate.reason": "why",
        "gate.at": "now",
        "gate.against": "policy 1",
    }
    assert metrics_of(checks) == {"eval_accuracy": 0.5} and json.dumps(rows_of(checks))
    assert table_text(checks).splitlines()[1] == "  CROSSED parity (nats) 0.1, allowed 0.01"
