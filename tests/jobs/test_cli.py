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
    ],
)
def test_dry_run_refuses_what_a_run_would_refuse(mistake, told, capsys):
    assert run("--dry-run", *mistake) == 2
    assert told in capsys.readouterr().err


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
