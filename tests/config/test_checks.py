"""The model folder and the resources a run asks for."""

import json

import pytest

from pipeline.config import ROOT, UserError, check_model_folder, check_resources, load_config


@pytest.fixture
def model(tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return tmp_path


def problem(folder):
    with pytest.raises(UserError) as caught:
        check_model_folder(str(folder))
    assert "model.path" in str(caught.value)
    return str(caught.value)


def test_complete_folder(model):
    assert check_model_folder(str(model)) == model


def test_template_in_a_file_of_its_own(model):
    (model / "tokenizer_config.json").write_text("{}")
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert check_model_folder(str(model)) == model


def test_relative_to_the_current_directory(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    assert check_model_folder(model.name) == model


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no weights"),
        ("tokenizer_config.json", "no tokenizer"),
    ],
)
def test_missing_files(model, gone, said):
    (model / gone).unlink()
    assert said in problem(model)


def test_no_folder_no_template_or_broken_settings(model):
    assert "hf download" in problem("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B")
    (model / "tokenizer_config.json").write_text("{}")
    assert "no chat template" in problem(model)
    (model / "tokenizer_config.json").write_text("{")
    assert "not valid JSON" in problem(model)


def test_resources_add_up():
    cfg = load_config(
        None,
        [
            "rollout.engines=3",
            "rollout.cpus_per_engine=0.5",
            "learner.ranks=2",
            "learner.cpus_per_rank=1",
            "judge.cpus=0.25",
        ],
    )
    asked = check_resources(cfg)
    assert (asked.cpus, asked.gpus) == (3.75, 0)
    assert asked.shortfall({"CPU": 4.0}) is None
    assert asked.shortfall({"CPU": 2.0}) == "needs 3.75 CPU, has 2"


def test_gpu_need_against_have():
    cfg = load_config(str(ROOT / "infra/presets/r1-distill-1.5b.yaml"), [])
    assert check_resources(cfg).gpus == 4
    assert check_resources(cfg).shortfall({"CPU": 64}) == "needs 4 GPU, has 0"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["engine.device=cpu", "rollout.gpus_per_engine=1"], "engine.device is cpu"),
        (["engine.device=cuda"], "gpus_per_engine is 0"),
        (["engine.device=cuda", "rollout.gpus_per_engine=1", "engine.tensor_parallel=2"], "tensor_parallel (2)"),
    ],
)
def test_contradictions(overrides, said):
    with pytest.raises(UserError) as caught:
        check_resources(load_config(None, overrides))
    assert said in str(caught.value)
