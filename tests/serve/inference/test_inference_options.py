"""Options by the names of articles: set under ours, or refused with the catalogue's sentence."""

import pytest

from pipeline.config import UserError, load_config
from pipeline.config.option_catalogue import catalogue
from serve import InferenceOptimizer
from serve.inference.options import config_from, overrides_from


def test_real_names_are_set_under_ours():
    options = {"kv_cache_dtype": "fp8", "max_num_seqs": 8, "model": "infra/models/tiny"}
    assert overrides_from(options) == ['kv.dtype="fp8"', "engine.max_num_seqs=8", 'model.path="infra/models/tiny"']
    cfg = config_from("infra/presets/tiny.yaml", options)
    assert (cfg.kv.dtype, cfg.engine.max_num_seqs) == ("fp8", 8)


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("use_speculative", True, "`use_speculative` is not a vLLM option"),
        ("decs_enabled", True, "`decs_enabled` is not a vLLM option; the weights learned it"),
        ("enable_dynamic_block_size", True, "`enable_dynamic_block_size` is not a vLLM option"),
        ("speculative_model", "x", "`speculative_model` is no longer a vLLM option under this name"),
        ("max_num_sqs", 4, "is no option of InferenceOptimizer; did you mean 'max_num_seqs'?"),
    ],
)
def test_what_cannot_be_set_says_why(name, value, part):
    for named in ({}, {"base_url": "http://127.0.0.1:1"}):
        with pytest.raises(UserError) as refused:
            InferenceOptimizer(**named, **{name: value})
        assert part in str(refused.value) and "\n" not in str(refused.value)


def test_every_name_of_the_catalogue_is_set_or_explained():
    for name, option in catalogue().items():
        try:
            assert overrides_from({name: 1}) == [f"{option.use}=1"]
        except UserError as refused:
            assert f"`{name}`" in str(refused)


def test_what_belongs_to_the_other_kind_is_refused():
    with pytest.raises(UserError, match="base_url"):
        InferenceOptimizer("infra/presets/tiny.yaml", api_key="k")
    with pytest.raises(UserError, match="max_num_seqs belongs to an engine of one's own"):
        InferenceOptimizer(base_url="http://127.0.0.1:1", max_num_seqs=4)
    with pytest.raises(UserError, match="config belongs to"):
        InferenceOptimizer("infra/presets/tiny.yaml", base_url="http://127.0.0.1:1")
    with pytest.raises(UserError, match="options in the config itself"):
        config_from(load_config(None, []), {"max_num_seqs": 4})
