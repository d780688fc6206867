"""The recipes of speculation: each is a config that the endpoint's checks accept for a GPU and that vLLM knows."""

import json
from importlib.util import find_spec

import pytest

import jobs.serve
from pipeline.config import ROOT, load_config
from pipeline.engine.options import EngineOptions
from pipeline.engine.vllm_source import class_fields
from serve.lever_checks import refusals
from serve.levers import engine_kwargs

RECIPES = sorted((ROOT / "infra" / "recipes").glob("speculate_*.yaml"))
HOPPER = (9, 0)
TARGET = {"num_nextn_predict_layers": 1}


def test_every_way_to_draft_has_one():
    methods = {load_config(str(path), []).speculation.method for path in RECIPES}
    assert methods == {"eagle3", "mtp", "draft_model", "ngram", "suffix"}
    assert any("assistant" in (load_config(str(path), []).speculation.model or "") for path in RECIPES)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_accepted_for_a_gpu_and_says_that_it_has_not_run(path):
    assert "Not run on a GPU so far" in path.read_text()
    cfg = load_config(str(path), [])
    assert refusals(cfg, "cuda", HOPPER, TARGET, installed=lambda package: True) == []
    asked = engine_kwargs(EngineOptions.from_config(cfg.engine, build="cuda"), cfg)
    assert set(asked) <= class_fields("AsyncEngineArgs") | class_fields("EngineArgs")
    assert set(asked["speculative_config"]) <= class_fields("SpeculativeConfig")
    assert json.loads(json.dumps(asked)) == asked


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_dry_runs_here(path, capsys):
    code = jobs.serve.command(["--config", str(path), "--dry-run"])
    seen = capsys.readouterr()
    if path.stem == "speculate_suffix" and find_spec("arctic_inference") is None:
        assert code == 2 and "arctic-inference is not installed" in seen.err
    else:
        assert code == 0 and "would start" in seen.out, seen.err
