"""Every preset is valid, says what it is, and can be dry-run."""

import pytest

from jobs._cli import run_command
from pipeline.config import ROOT, check_resources, load_config

PRESETS = sorted((ROOT / "infra" / "presets").glob("*.yaml"))


def test_there_are_presets():
    assert {p.stem for p in PRESETS} >= {"tiny", "r1-distill-1.5b", "r1-distill-7b", "qwen3-4b"}


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: p.stem)
def test_preset_is_valid_and_dry_runs(path, capsys, tmp_path):
    cfg = load_config(str(path), [])
    assert path.read_text().startswith("#")
    code = run_command(
        "train", "Train.", lambda cfg, args: pytest.fail("started"), argv=["--config", str(path), "--dry-run"]
    )
    out = capsys.readouterr().out
    assert code == 0 and "would start" in out
    assert f"asks Ray for {check_resources(cfg).cpus:g} CPU" in out
    (tmp_path / "again.yaml").write_text(out)
    assert load_config(str(tmp_path / "again.yaml"), []).learner == cfg.learner


@pytest.mark.parametrize("name", ["r1-distill-1.5b", "r1-distill-7b", "qwen3-4b"])
def test_paper_settings(name):
    cfg = load_config(str(ROOT / f"infra/presets/{name}.yaml"), [])
    rollout, learner, curriculum = cfg.rollout, cfg.learner, cfg.curriculum
    assert (rollout.prompts_per_step, rollout.group_size, rollout.temperature, rollout.top_p) == (64, 16, 0.6, 1.0)
    assert (rollout.max_new_tokens, cfg.engine.max_model_len) == (16384, 16384 + 1024)
    assert (learner.lr, learner.weight_decay, learner.clip_low, learner.clip_high) == (2e-6, 0.01, 0.2, 0.2)
    assert (learner.dual_clip, learner.mini_batches, cfg.model.dtype) == (3.0, 1, "bfloat16")
    assert (curriculum.rule, curriculum.kappa_rate, curriculum.kappa_start) == ("feedback_clipped", 0.2, 0.0)
    assert (cfg.reward.name, cfg.reward.r_plus, cfg.reward.r_zero) == ("decs", 1.1, 1.0)
    assert check_resources(cfg).gpus == 4
    assert learner.micro_batch_tokens >= cfg.engine.max_model_len
    assert cfg.problems.train[0].kind == "hub" and cfg.problems.train[0].columns.gold == "answer"
    assert "step by step" in cfg.problems.prompt_suffix and "\\boxed{}" in cfg.problems.prompt_suffix


def test_tiny_settings():
    cfg = load_config(str(ROOT / "infra/presets/tiny.yaml"), [])
    assert [(s.name, s.size, s.split) for s in cfg.problems.train] == [
        ("chain_sum", 4096, "train"),
        ("search", 4096, "train"),
    ]
    assert [(s.name, s.size, s.split) for s in cfg.problems.held_out] == [
        ("chain_sum", 150, "held_out"),
        ("search", 150, "held_out"),
    ]
    assert (cfg.run.steps, cfg.learner.lr, cfg.curriculum.kappa_start) == (30, 3e-4, 0.75)
    assert cfg.publish.every == 8 and not cfg.publish.endpoint and check_resources(cfg).gpus == 0
