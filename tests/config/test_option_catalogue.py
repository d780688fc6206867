"""What the catalogue says of names from elsewhere: the sentence, the page, and the installed vLLM."""

import subprocess
import sys

import pytest

import jobs.serve
from pipeline.config import ROOT, RunConfig, UserError, load_config
from pipeline.config.option_catalogue import HEADS, RUNS, SECTIONS, advice, catalogue, page
from pipeline.engine.vllm_source import class_fields, config_fields

OPTIONS = catalogue()


def test_the_documented_command(capsys):
    argv = ["--config", "infra/presets/tiny.yaml", "engine.prefill_chunk_size=512", "--dry-run"]
    assert jobs.serve.command(argv) == 2
    assert capsys.readouterr().err == (
        "error: override 'engine.prefill_chunk_size=512': `prefill_chunk_size` is not a vLLM option; "
        "use batching.max_num_batched_tokens=512\n"
    )


@pytest.mark.parametrize("section", ["", *(f"{name}." for name in SECTIONS)])
def test_wherever_it_was_put(section):
    with pytest.raises(UserError, match="use batching.max_num_batched_tokens=64$"):
        load_config(None, [f"{section}prefill_chunk_size=64"])


def test_in_a_file_and_as_a_flag(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("engine: {--kv-cache-dtype: fp8}\n")
    with pytest.raises(UserError, match='run.yaml: `kv_cache_dtype` is vLLM\'s own name for it; use kv.dtype="fp8"$'):
        load_config(str(file))


def test_no_other_section_and_no_other_name():
    assert advice(("learner", "block_size"), 16) is None
    assert advice(("engine", "max_num_sequences"), 16) is None
    with pytest.raises(UserError, match="unknown key 'learner.block_size'; "):
        load_config(None, ["learner.block_size=16"])


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda o: o.name)
def test_entry_is_whole(option):
    assert option.status in HEADS and option.runs in RUNS and option.meaning and option.remedy()
    assert (option.runs == "none") == (option.vllm is None)
    assert not option.carry or option.use
    if option.use:
        section, key = option.use.split(".")
        assert key in type(getattr(RunConfig(), section)).model_fields, f"{option.use} is no option here"


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda o: o.name)
def test_entry_against_the_installed_vllm(option):
    """Read from its source: nothing is imported."""
    if option.vllm:
        kind, field = option.vllm.split(".")
        assert field in class_fields(kind), f"vLLM's {kind} no longer has {field}"
    if option.status in ("real", "default_now"):
        assert option.vllm.split(".")[1] == option.name
    elif option.status == "renamed":
        assert option.name not in class_fields("EngineArgs") | class_fields("SamplingParams")
    else:
        assert option.name not in class_fields("SamplingParams") | config_fields()


def test_eager_mode_is_no_option_here():
    with pytest.raises(UserError) as caught:
        load_config(None, ["engine.enforce_eager=true"])
    assert "it is set on CPU, where compiling gains nothing, and left off on a GPU" in str(caught.value)


def test_data_parallelism_is_replicas_here():
    with pytest.raises(UserError) as caught:
        load_config(None, ["engine.data_parallel_size=2", "speculation={method: ngram, k_max: 4, table: [[1, 4, 4]]}"])
    assert "set serve.replicas" in str(caught.value) and "draft lengths that change" in str(caught.value)


def test_the_page_is_current():
    assert (ROOT / "docs/serving_options.md").read_text(encoding="utf-8") == page()


def test_the_catalogue_is_read_only_where_a_key_is_wrong():
    code = (
        "import sys; from pipeline.config import load_config; load_config(None); "
        "print(sorted({'pipeline.config.option_catalogue', 'torch', 'vllm', 'ray'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
