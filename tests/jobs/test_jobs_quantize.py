"""`jobs.quantize` and `jobs.qat` on the command line: a folder comes out, or one sentence says why not."""

import json
import shutil

import pytest

from jobs.quantize import command
from pipeline.config import RunConfig, UserError, load_config
from pipeline.weights import read_manifest, verify
from tests.quantization.rounded_folders import make_base


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


def test_a_model_is_rounded_and_the_difference_told(base, tmp_path, capsys):
    out = tmp_path / "four"
    assert command(["--model", str(base), "--out", str(out), "--group", "16", "problems.held_out=[]"]) == 0
    text = capsys.readouterr().out
    assert "W4A16, groups of 16: 14 linear layers rounded" in text and "of before" in text
    report = json.loads((out / "quantization.json").read_text())
    assert report["compared"]["on"] == "a fixed sequence of token ids" and 0 < report["compared"]["kl"] < 1
    assert verify(out).digest[:12] in text and read_manifest(out).version == 0
    before, after = ((folder / "model.safetensors").stat().st_size for folder in (base, out))
    assert after < before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bits", "8", "--group", "32"], "--group does nothing with --bits 8"),
        (["--bits", "5"], "invalid choice"),
        (["--group", "48"], "inputs, no whole number of groups of 48"),
        (["--group", "x"], "--group takes a whole number"),
        (["--out", "."], "exists; give a new folder"),
        (["--model", "nowhere"], "no model folder at"),
        (["--group", "1"], "--group 1 shares a scale with nobody"),
        (["--group", "7"], "inputs, no whole number of groups of 7"),
        (["--out", "pyproject.toml/out"], "pyproject.toml is no folder to write in"),
        (["--model", "infra/models/judge"], "cannot be asked the held-out problems"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_mistakes_are_one_sentence(base, tmp_path, capsys, arguments, text, dry):
    given = ["--model", str(base), "--out", str(tmp_path / "out"), *arguments, *dry]
    assert command(given) == 2
    assert text in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("config.json", {"model_type": "nope"}, "is of no model that transformers can build"),
        ("config.json", {"num_attention_heads": 5}, "is of no model that transformers can build"),
        ("config.json", {"hidden_size": "x"}, "is of no model that transformers can build"),
        ("config.json", {"hidden_size": 64}, "by config.json; copy the config.json"),
        ("config.json", {"vocab_size": 99}, "'model.embed_tokens.weight' is [48, 32] in the weights and [99, 32]"),
        ("tokenizer_config.json", "{broken", "tokenizer_config.json is not valid JSON"),
        ("tokenizer_config.json", "[1]", "tokenizer_config.json holds no mapping"),
        ("tokenizer.json", "{broken", "its tokenizer or chat template fails (JSONDecodeError"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_folder_that_is_no_whole_model(base, tmp_path, capsys, file, content, text, dry):
    folder = tmp_path / "broken"
    shutil.copytree(base, folder)
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / file).read_text()) | content)
    (folder / file).write_text(content)
    assert command(["--model", str(folder), "--out", str(tmp_path / "out"), *dry]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert text in lines[-1] and lines[-1].startswith("error: ") and not (tmp_path / "out").exists()


def test_rounded_weights_are_not_rounded_again(base, tmp_path, capsys):
    assert command(["--model", str(base), "--bits", "8", "--out", str(tmp_path / "eight")]) == 0
    assert command(["--model", str(tmp_path / "eight"), "--out", str(tmp_path / "four")]) == 2
    assert "holds INT8 (W8A8, compressed-tensors) weights already" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(base, tmp_path, capsys):
    assert command(["--model", str(base), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "rounded to W4A16, groups of 32" in capsys.readouterr().out and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["qat.bits=4", "quant.weights=fp8_per_tensor"], "weights are rounded once; set one of the two"),
        (["qat.bits=4", "quant.weights=int8_per_channel_weight_only"], "weights are rounded once"),
        (["qat.lr=0.1"], "lr does nothing without bits"),
        (["qat.group=null"], "group does nothing without bits"),
        (["qat.bits=8"], "qat.bits"),
    ],
)
def test_one_form_of_the_weights(overrides, text):
    with pytest.raises(UserError, match=text):
        load_config(None, overrides)


def test_fp8_for_the_kv_cache_goes_with_either():
    assert load_config(None, ["qat.bits=4", "kv.dtype=fp8"]).qat.group == 32
    assert load_config(None, ["quant.weights=fp8_per_tensor", "kv.dtype=fp8"]).qat.bits is None
    RunConfig.model_validate(load_config(None, ["quant.weights=fp8_per_tensor"]).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ([], "qat.bits is not set"),
        (["qat.bits=4", "learner.zero_stage=3"], "use 0, 1 or 2"),
        (["qat.bits=4", "learner.micro_batch_tokens=100"], "cannot hold one answer"),
        (["qat.bits=4", "model.path={rounded}"], "weights already"),
        (["qat.bits=4", "qat.group=7"], "no whole number of groups of 7"),
        (["qat.bits=4", "qat.steps=5"], r"qat.warmup_steps \(10\) is above qat.steps \(5\)"),
        (["qat.bits=4", "problems.train=[]"], "problems.train is empty"),
    ],
)
def test_what_cannot_be_trained_for(overrides, text, base, tmp_path):
    from jobs.qat import _check

    rounded = tmp_path / "rounded"
    if any("rounded" in override for override in overrides):
        assert command(["--model", str(base), "--out", str(rounded)]) == 0
    cfg = load_config("infra/presets/tiny.yaml", [override.format(rounded=rounded) for override in overrides])
    with pytest.raises(UserError, match=text):
        _check(cfg)


def test_answers_held_out_are_not_learned_from(tmp_path):
    import random

    from jobs._qat import make_draw, read_answers

    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"prompt": [1], "response": [number]}) + "\n" for number in range(20)))
    learned, held_out = read_answers(file, 0.1)
    assert [response for _, response in held_out] == [[0], [1]] and len(learned) == 18
    cfg = load_config(None, ["qat.bits=4", "qat.held_out=0.1"])
    draw, rng = make_draw(str(file), cfg), random.Random(0)
    assert {draw(rng, False)[1][0] for _ in range(300)} == set(range(2, 20))
    file.write_text('{"prompt": [1], "response": [2]}\n')
    with pytest.raises(UserError, match="1 answers leave none to learn from"):
        read_answers(file, 0.1)
