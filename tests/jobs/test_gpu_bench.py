"""The script for one GPU, as far as a CPU can check it: its cases, its made-up model, and its servers' arguments by
vLLM's own parser."""

import sys

import pytest

from pipeline.config import ROOT


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "infra/gpu"))
    try:
        import bench_serve
        import gpu_cases

        yield bench_serve, gpu_cases
    finally:
        sys.path.remove(str(ROOT / "infra/gpu"))
        for name in ("bench_serve", "gpu_cases"):
            sys.modules.pop(name, None)


def test_the_most_valuable_first_and_the_time_is_kept(script, tmp_path):
    found = script[1].cases(tmp_path)
    names = [case.name for case in found]
    assert names[:5] == ["block-8", "block-16", "block-32", "block-64", "block-128"] and names[5] == "bf16"
    assert names.index("static-2.5") < names.index("adaptive") < names.index("static-1.5")
    assert [case.name for case in script[1].in_time(found, 61)] == names[:5]  # the starts count once
    assert script[1].in_time(found, 59) == [] and script[1].in_time(found, 10**6) == found
    assert names[: names.index("adaptive") + 1] == [case.name for case in script[1].in_time(found, 12 * 60)]
    assert all(case.labels["acceptance"] == "set, not measured" for case in found if case.does == "steps")


def test_it_says_what_it_would_start(script, tmp_path, capsys):
    assert script[0].main(["--out", str(tmp_path), "--minutes", "1", "--plan"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 5 and "--load-format dummy" in told[0] and "--host 127.0.0.1" in told[0]
    assert list(tmp_path.iterdir()) == []


def test_requests_share_no_prefix_and_have_the_length_asked_for(script):
    shapes = script[0].shapes(40, 30, (8, 16))
    assert {len(shape.prompt.split()) for shape in shapes} == {30}
    assert len({shape.prompt.split()[0] for shape in shapes}) == 40 and shapes[1].max_tokens == 16


def test_the_made_up_model_is_small_on_disk_and_its_words_are_tokens(script, tmp_path):
    from transformers import AutoConfig, AutoTokenizer

    script[1].make_model(tmp_path / "8b", script[1].SHAPES["8b"])
    assert sum(path.stat().st_size for path in (tmp_path / "8b").iterdir()) < 16 << 20
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "8b")
    assert tokenizer("t2 t128255").input_ids == [2, 128255]
    config = AutoConfig.from_pretrained(tmp_path / "8b")
    inner = 3 * config.hidden_size * config.intermediate_size + 2.5 * config.hidden_size**2
    size = config.num_hidden_layers * inner + 2 * config.vocab_size * config.hidden_size
    assert 7.5e9 < size < 8.5e9


@pytest.mark.slow
def test_vllm_parses_the_arguments_of_every_case(script, tmp_path):
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    for case in script[1].cases(tmp_path):
        command = script[0].launch_of(case, tmp_path).command
        args = AsyncEngineArgs.from_cli_args(parser.parse_args(command[3:]))
        for name, value in case.kwargs.items():
            taken = getattr(args, name)
            if name == "kv_transfer_config":  # an object by now
                taken = {key: getattr(taken, key) for key in value}
            assert taken == value, (case.name, name)
