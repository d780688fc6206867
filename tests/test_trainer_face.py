"""The article's words as a config, and what they may not say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jobs._training
from pipeline import DECSTrainer
from pipeline.config import UserError, load_config, resolve_paths

ROOT = Path(__file__).resolve().parents[1]
TINY = "infra/presets/tiny.yaml"
ARTICLE = {
    "model": "infra/models/tiny",
    "nrp_detector": {"type": "lightweight_classifier", "threshold": 0.9, "training_data": "math_only"},
    "decoupled_reward": {"nrp_penalty": 0.0, "redundancy_penalty": -0.5},
    "curriculum_scheduling": {"easy_ratio_start": 0.1, "easy_ratio_end": 0.5, "schedule_steps": 300},
}


def test_the_whole_of_it():
    cfg = DECSTrainer(**ARTICLE, config=TINY, **{"run.steps": 7, "learner.lr": 1e-5}).config
    assert cfg.model.path == str(ROOT / "infra/models/tiny")
    assert (cfg.judge.name, cfg.judge.threshold) == ("learned", 0.9)
    assert (cfg.reward.name, cfg.reward.r_plus, cfg.reward.r_zero) == ("decs", 1.1, 0.6)
    curriculum = cfg.curriculum
    assert (curriculum.rule, curriculum.easy_ratio_start, curriculum.easy_ratio_end) == ("linear", 0.1, 0.5)
    assert (curriculum.schedule_steps, curriculum.kappa_start) == (300, 0.0)  # the preset's kappa_start is not read
    assert (cfg.run.steps, cfg.learner.lr) == (7, 1e-5)
    assert cfg.rollout == load_config(TINY).rollout and curriculum.min_batch_share == 0.2


def test_what_is_left_out_stays_as_the_config_has_it():
    cfg, preset = DECSTrainer("infra/models/tiny", config=TINY).config, resolve_paths(load_config(TINY))
    assert (cfg.judge, cfg.reward, cfg.curriculum) == (preset.judge, preset.reward, preset.curriculum)
    partial = DECSTrainer("infra/models/tiny", {"type": "exact"}, {"nrp_penalty": 0}, {"easy_ratio_end": 0.3}).config
    assert partial.judge.name == "exact" and partial.reward.r_zero == 1.0
    assert (partial.curriculum.easy_ratio_start, partial.curriculum.easy_ratio_end) == (0.2, 0.3)


@given(st.floats(0.001, 1.099), st.booleans())
def test_the_penalty_is_the_gap_whatever_its_sign(size, negative):
    cfg = DECSTrainer("m", decoupled_reward={"redundancy_penalty": -size if negative else size}).config
    assert cfg.reward.r_plus - cfg.reward.r_zero == pytest.approx(size) and cfg.reward.r_zero > 0


def test_overrides_win_and_bound_the_penalty():
    penalty = {"redundancy_penalty": -1.5}
    assert DECSTrainer("m", decoupled_reward=penalty, **{"reward.r_plus": 2}).config.reward.r_zero == 0.5
    assert DECSTrainer("m", {"threshold": 0.9}, **{"judge.threshold": 0.5}).config.judge.threshold == 0.5
    with pytest.raises(UserError, match=r"between 0 and 0\.55"):
        DECSTrainer("m", decoupled_reward={"redundancy_penalty": -0.6}, **{"reward.form": "paper"})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"nrp_detector": {"treshold": 0.5}}, "nrp_detector has no 'treshold'; did you mean 'threshold'?"),
        ({"nrp_detector": {"type": "lightweight"}}, "did you mean 'lightweight_classifier'?"),
        ({"nrp_detector": {"threshold": 1.5}}, "nrp_detector threshold is 1.5; give a share between 0 and 1"),
        ({"nrp_detector": {"threshold": "high"}}, "nrp_detector threshold is 'high'; give a number"),
        ({"nrp_detector": {"training_data": "code"}}, "training_data 'code': the judge that is shipped"),
        ({"nrp_detector": {"type": "exact", "threshold": 0.5}}, "threshold does nothing with type 'exact'"),
        ({"nrp_detector": "exact"}, "nrp_detector is 'exact'; give a mapping"),
        ({"decoupled_reward": {"nrp_penalty": -0.1}}, "nrp_penalty is -0.1: tokens up to the first right"),
        ({"decoupled_reward": {"redundancy_penalty": 0}}, "redundancy_penalty is 0: its size must lie between"),
        ({"decoupled_reward": {"redundancy_penalty": -1.1}}, "redundancy_penalty is -1.1: its size must lie between"),
        ({"decoupled_reward": {"redundancy_penalty": True}}, "redundancy_penalty is True; give a number"),
        ({"decoupled_reward": {"redundant_penalty": 1}}, "did you mean 'redundancy_penalty'?"),
        ({"curriculum_scheduling": {"easy_ratio_start": 0.7}}, "falls from 0.7 to 0.6: easy prompts are where"),
        ({"curriculum_scheduling": {"easy_ratio_end": 1}}, "easy_ratio_end is 1: a batch of easy prompts alone"),
        ({"curriculum_scheduling": {"easy_ratio_end": 1.2}}, "easy_ratio_end is 1.2; give a share between 0 and 1"),
        ({"curriculum_scheduling": {"easy_ratio_start": -0.1}}, "easy_ratio_start is -0.1; give a share"),
        ({"curriculum_scheduling": {"schedule_steps": 0}}, "schedule_steps is 0; give a whole number of steps above 0"),
        ({"curriculum_scheduling": {"schedule_steps": 2.5}}, "schedule_steps is 2.5; give a whole number"),
        ({"curriculum_scheduling": {"steps": 5}}, "did you mean 'schedule_steps'?"),
        ({"nrp_detecter": {}}, "DECSTrainer has no argument 'nrp_detecter'; did you mean 'nrp_detector'?"),
        ({"learner.learning": 1}, "learner"),
        ({"config": "infra/presets/tiny2.yaml"}, "presets: infra/presets/tiny.yaml"),
        ({"reward.r_zero": 3}, "reward.r_zero (3.0) must lie between"),
        ({"rollout.gpus_per_engine": 1, "engine.device": "cpu"}, "gpus_per_engine is set but engine.device is cpu"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_sentence(arguments, told):
    with pytest.raises(UserError, match=re.escape(told)) as caught:
        DECSTrainer("m", **arguments)
    assert "\n" not in str(caught.value)


def test_training_is_the_job_s_own(monkeypatch):
    ran = []
    monkeypatch.setattr(jobs._training, "run_training", lambda *arguments: ran.append(arguments) or {"steps": 7})
    trainer = DECSTrainer(**ARTICLE, config=TINY)
    assert trainer.train() == {"steps": 7} and ran == [(trainer.config, TINY)]


def test_importing_the_package_is_cheap():
    code = (
        "import sys, pipeline; heavy = {'torch', 'ray', 'vllm', 'mlflow', 'numpy', 'pydantic'} & set(sys.modules); "
        "pipeline.DECSTrainer; heavy |= {'torch', 'ray', 'vllm', 'mlflow'} & set(sys.modules); print(sorted(heavy))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
