"""The frame of all commands: exit codes, dry runs, and what is imported before anything starts."""

import subprocess
import sys

import pytest

from jobs._cli import run_command
from pipeline.config import ROOT, UserError, load_config


def run(*argv, main=lambda cfg, args: 0, **kwargs):
    return run_command("train", "Train a policy.", main, argv=list(argv), **kwargs)


def test_main_gets_config_and_arguments():
    seen = {}

    def main(cfg, args):
        seen.update(seed=cfg.run.seed, lr=cfg.learner.lr, flag=args.flag)
        return 7

    def extra(parser):
        parser.add_argument("--flag", type=int, default=0)

    assert run("run.seed=5", "--flag", "3", "learner.lr=1e-3", main=main, extra_args=extra) == 7
    assert seen == {"seed": 5, "lr": 1e-3, "flag": 3}


def test_own_positional_argument_comes_first():
    seen = []
    code = run(
        "up",
        "run.seed=1",
        main=lambda cfg, args: seen.append((args.action, cfg.run.seed)) or 0,
        extra_args=lambda parser: parser.add_argument("action", choices=["up", "down"]),
    )
    assert code == 0 and seen == [("up", 1)]


def test_main_gets_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    run("model.path=infra/presets", main=lambda cfg, args: seen.append((cfg.model.path, cfg.storage.uri)) or 0)
    assert seen == [(str(ROOT / "infra/presets"), str(tmp_path / "runs"))]


def test_config_found_from_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    run("--config", "infra/presets/tiny.yaml", main=lambda cfg, args: seen.append(cfg.curriculum.max_rounds) or 0)
    assert seen == [2]


@pytest.mark.parametrize(
    "argv",
    [
        ["learner.lrr=1"],
        ["--config", "none.yaml"],
        ["--no-such"],
        ["run.steps=0"],
        ["--config"],
        ["--dry"],
        ["--config", ""],
        ["novalue"],
    ],
)
def test_mistakes_are_one_line_and_code_2(argv, capsys):
    assert run(*argv, main=lambda cfg, args: pytest.fail("started")) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1


def test_mistake_found_by_main(capsys):
    def main(cfg, args):
        raise UserError("reward.name 'x' is unknown")

    assert run(main=main) == 2
    assert capsys.readouterr().err == "error: reward.name 'x' is unknown\n"


def test_interrupt(capsys):
    def main(cfg, args):
        raise KeyboardInterrupt

    assert run(main=main) == 130
    assert capsys.readouterr().err == "train: interrupted\n"


def test_other_exceptions_go_on():
    def main(cfg, args):
        raise RuntimeError("engine died")

    with pytest.raises(RuntimeError, match="engine died"):
        run(main=main)


def test_dry_run_prints_a_config_file_and_the_plan(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:5000")
    assert run("--dry-run", "run.seed=5", main=lambda cfg, args: pytest.fail("started")) == 0
    out = capsys.readouterr().out
    for part in (
        "2 rollout engines, each 0.5 CPU and 0 GPU",
        "2 learner ranks",
        "asks Ray for 2.25 CPU and 0 GPU",
        f"storage: {tmp_path}/runs",
        "tracking: http://***@127.0.0.1:5000 (MLFLOW_TRACKING_URI)",
    ):
        assert part in out
    assert "secret" not in out
    (tmp_path / "again.yaml").write_text(out)
    assert load_config(str(tmp_path / "again.yaml"), []).run.seed == 5


def test_dry_run_says_when_the_model_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--dry-run", "model.path=no/model") == 0
    assert "NOT READY: model.path: no model folder at" in capsys.readouterr().out


def test_dry_run_with_a_plan_of_its_own(capsys):
    assert run("--dry-run", plan=lambda cfg, args: f"nothing\nseed {cfg.run.seed}") == 0
    assert capsys.readouterr().out.endswith("# would start:\n#   nothing\n#   seed 0\n")


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (["reward.name=dec"], "reward.name 'dec' is unknown"),
        (["reward.options={gama: 1}"], "has no option 'gama'"),
        (["curriculum.rule=linear", "curriculum.kappa_start=0.3"], "kappa_start"),
        (["problems.train.0.name=chain_sums"], "no tiny family 'chain_sums'; did you mean 'chain_sum'"),
        (["problems.held_out.0.split=trian"], "no split 'trian'"),
        (["problems.train.0.options={max_trems: 3}"], "no option 'max_trems'; did you mean 'max_terms'"),
        (["problems.train.0.options={max_terms: 99}"], "2 <= min_terms <= max_terms <= 11"),
        (["problems.train=[{kind: jsonl, path: infra}]"], "is a folder"),
        (["problems.train=[{kind: parquet, path: none.parquet}]"], "no parquet file at none.parquet"),
        (["problems.train=[{kind: hub, name: a/b, options: {revison: x}}]"], "did you mean 'revision'"),
        (["problems.train=[{kind: reasoning_gym, name: chain_sums, size: 1}]"], "no task 'chain_sums'"),
        (["judge.name=learned", "judge.path=none"], "judge.path: no judge at"),
        (["judge.name=learned", "judge.digest=abc"], "judge.digest is abc but the judge in"),
        (["reward.r_plus=1e308"], "reward.r_plus is 1e+308; it must be a number at least -1000000.0"),
        (["reward.name=kimi", "rollout.group_size=1"], "rollout.group_size is 1"),
        (["reward.options=3"], "reward.options is 3; it must be a mapping\n"),
        (["learner.betas=[1.5, 0.9]"], "learner.betas.0 is 1.5; it must be a number at least 0 and below 1"),
        (["serve.port=70000"], "serve.port is 70000; it must be a whole number at least 0 and at most 65535"),
        (["warm_start.heads=3"], "hidden=128 over heads=3"),
        (["judge_training.heads=3"], "hidden=64 over heads=3"),
        (["warm_start.min_checks=4"], "min_checks (4) is above max_checks (3)"),
        (["learner.lrr=1"], "unknown key 'learner.lrr'; did you mean 'learner.lr'?"),
        (["lerner.lr=1"], "unknown key 'lerner'; did you mean 'learner'?"),
        (["tracking.uri=nonsense"], "tracking.uri 'nonsense' is no MLflow store"),
        (["tracking.uri=http://"], "is no MLflow store"),
        (["tracking.uri=http://host:port"], "is no MLflow store"),
        (["tracking.uri=postgresql://me:secret@host/db"], "me:***@host/db' is a database, which has no place"),
        (["tracking.uri=sqlite:///x.db", "tracking.experiment=Default"], "is MLflow's own"),
        (["storage.uri=ftp://host/x"], "has scheme 'ftp'"),
        (["storage.uri=s3:///x"], "names no bucket"),
        (["--config="], "the config file's name is empty"),
        (["--config=infra"], "infra is a folder"),
    ],
)
def test_dry_run_refuses_what_a_run_would_refuse(mistake, told, capsys):
    assert run("--dry-run", *mistake) == 2
    error = capsys.readouterr().err
    assert told in error and error.startswith("error: ") and error.count("\n") == 1


def test_files_of_problems_are_read_by_a_dry_run(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    source = f"problems.train=[{{kind: jsonl, path: {file}}}]"
    for text, told in (('{"question": "q"}\n', "no column for"), ('{"prompt": "\\ud83e", "gold": 1}\n', "surrogate")):
        file.write_text(text)
        assert run("--dry-run", source) == 2 and told in capsys.readouterr().err
    file.write_text('{"prompt": "q", "gold": 1}\n')
    assert run("--dry-run", source) == 0


def test_the_exact_judge_may_stand_beside_the_path_of_a_learned_one():
    assert run("--dry-run", "judge.name=exact", "judge.path=none", "judge.digest=abc") == 0


def test_dry_run_refuses_contradicting_options(capsys):
    assert run("--dry-run", "engine.device=cuda") == 2
    assert "gpus_per_engine" in capsys.readouterr().err


SCRIPT = """
import sys
from jobs._cli import run_command
def main(cfg, args):
    raise RuntimeError("engine died")
code = run_command("train", "Train a policy.", main)
print(sorted({'torch', 'ray', 'vllm', 'mlflow', 'transformers'} & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def script(*argv):
    return subprocess.run([sys.executable, "-c", SCRIPT, *argv], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_as_a_process():
    helped = script("--help")
    assert helped.returncode == 0 and "key=value" in helped.stdout
    dry = script("--dry-run", "--config", "infra/presets/tiny.yaml")
    assert dry.returncode == 0 and dry.stderr == "[]\n"
    wrong = script("run.stps=1")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: override 'run.stps=1'")
    died = script()
    assert died.returncode == 1 and "Traceback" in died.stderr and "engine died" in died.stderr
