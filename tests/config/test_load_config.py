"""Files, overrides, digests, and the sentence for each mistake."""

import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import ROOT, RunConfig, UserError, config_digest, load_config, resolve_paths, to_yaml, yaml_text


def write(tmp_path, text, name="run.yaml"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def message(path=None, *overrides):
    with pytest.raises(UserError) as caught:
        load_config(path, list(overrides))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults():
    assert load_config(None, []) == RunConfig()


def test_file_then_overrides_in_order(tmp_path):
    path = write(tmp_path, "learner: {lr: 3e-4, ranks: 3}\nrun:\n  steps: 7\n")
    cfg = load_config(path, ["learner.ranks=4", "learner.ranks=5", "curriculum.kappa_rate=0.1"])
    assert (cfg.learner.lr, cfg.learner.ranks, cfg.run.steps, cfg.curriculum.kappa_rate) == (3e-4, 5, 7, 0.1)
    assert cfg.learner.clip_low == RunConfig().learner.clip_low


@pytest.mark.parametrize("text", ["3e-4", "3E-4", "3.0e-4", "0.0003", "+3e-4", ".0003"])
def test_scientific_notation_is_a_number(text):
    lr = load_config(None, [f"learner.lr={text}"]).learner.lr
    assert isinstance(lr, float) and lr == 3e-4


def test_off_and_leading_zeros_stay_what_they_look_like():
    assert load_config(None, ["run.name=off"]).run.name == "off"
    assert load_config(None, ["run.steps=010"]).run.steps == 10


def test_list_items_by_index(tmp_path):
    path = write(tmp_path, "problems:\n  train:\n  - {name: chain_sum, size: 5}\n  - {name: search, size: 6}\n")
    cfg = load_config(path, ["problems.train.1.size=10", "problems.train.0.columns.gold=answer"])
    assert [s.size for s in cfg.problems.train] == [5, 10]
    assert cfg.problems.train[0].columns.gold == "answer"
    cfg = load_config(None, ["problems.train.0.size=9", "problems.train.0.options.max_terms=3"])
    assert cfg.problems.train[0].size == 9 and cfg.problems.train[0].options == {"max_terms": 3}


def test_mappings_merge_and_lists_replace(tmp_path):
    path = write(tmp_path, "curriculum: {kappa_rate: 0.3}\n")
    cfg = load_config(path, ["curriculum={rule: constant}", "problems.train=[{kind: tiny, name: search, size: 3}]"])
    assert cfg.curriculum.kappa_rate == 0.3 and cfg.curriculum.rule == "constant"
    assert [s.name for s in cfg.problems.train] == ["search"]


def test_empty_section_is_the_default(tmp_path):
    assert load_config(write(tmp_path, "curriculum:\nrun: {seed: 1}\n"), []).curriculum == RunConfig().curriculum


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("curriculum.kappa_rte=0.1", ["override 'curriculum.kappa_rte=0.1'", "'curriculum.kappa_rte'"]),
        ("curriculum.kappa_rte=0.1", ["did you mean 'curriculum.kappa_rate'?"]),
        ("curriculm.kappa_rate=0.1", ["unknown key 'curriculm'", "'curriculum'"]),
        ("problems.train.0.siz=10", ["'problems.train.0.siz'", "'problems.train.0.size'"]),
        ("problems.train.3.size=10", ["'problems.train' is a list of 1", "not '3'"]),
        ("problems.train.first.size=10", ["index from 0", "'first'"]),
        ("problems.train.3=x", ["'problems.train' is a list of 1"]),
        ("run.seed.x=1", ["'run.seed' is a single value"]),
        ("learner.lr=fast", ['learner.lr is "fast"', "a number at least 0"]),
        ("learner.lr=-1", ["learner.lr is -1", "a number at least 0"]),
        ("learner.lr=.inf", ["learner.lr", "finite"]),
        ("learner.lr=.nan", ["learner.lr", "number"]),
        ("run.steps=true", ["run.steps is true", "a whole number above 0"]),
        ("run.steps=2.5", ["run.steps is 2.5", "a whole number above 0"]),
        ("run.name=12", ["run.name is 12", "quotes"]),
        ("problems.prompt_suffix=", ["problems.prompt_suffix is null", '""']),
        ("judge.threshold=2", ["judge.threshold is 2", "at least 0 and at most 1"]),
        ("learner.betas=[0.9]", ["learner.betas is [0.9]", "a list of 2"]),
        ("problems.train.0.options.x=[1]", ["problems.train.0.options.x is [1]", "true or false or a whole number"]),
        ("engine.block_size=0", ["engine.block_size is 0", "above 0 or null"]),
        ("rollout.max_new_tokens=512", ["rollout.max_new_tokens (512)", "engine.max_model_len (512)"]),
        ("run=", ["'run' is a section"]),
        ("run=3", ["run is 3", "a mapping"]),
        ("run.name=[1", ["not valid YAML"]),
        ("run.name", ["section.option=value"]),
        ("run..name=x", ["section.option=value"]),
        ("problems.train=[{kind: hub}]", ["problems.train.0", "needs name"]),
        ("problems.train=[{kind: parquet}]", ["problems.train.0", "needs path"]),
        ("problems.train=[{kind: tiny, size: 1, path: x}]", ["problems.train.0", "no path"]),
        ("problems.train=[{kind: tiny}]", ["problems.train.0", "needs size"]),
        ("problems.train=[{kind: jsonl, path: x, options: {a: 1}}]", ["no options"]),
    ],
)
def test_one_sentence_for_a_bad_override(override, parts):
    text = message(None, override)
    for part in parts:
        assert part in text, text


def test_enum_mistake_lists_the_choices():
    text = message(None, "curriculum.rule=linaer")
    assert "curriculum.rule" in text and "feedback_clipped" in text and "constant" in text


def test_file_mistakes_name_the_file_and_the_key(tmp_path):
    path = write(tmp_path, "learner:\n  lrr: 3\n")
    text = message(path, "run.seed=3")
    assert path in text and "'learner.lrr'" in text and "did you mean 'learner.lr'" in text
    text = message(write(tmp_path, "learner:\n  lr: quick\nrun: {steps: 0}\n"))
    assert "run.yaml" in text and "(and 1 more)" in text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("learner: [", "not valid YAML"),
        ("- a\n- b\n", "holds a list"),
        ("", "holds nothing"),
        ("just words", "holds a single value"),
        ("run: {seed: 1}\nrun: {seed: 2}\n", "line 2: the key 'run' stands twice"),
        ("run:\n  seed: 1\n  name: a\n  seed: 2\n", "line 4: the key 'seed' stands twice"),
        ("1: 2\n", "a key must be text"),
        ("run: !!python/object:os.system {}\n", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
    ],
)
def test_unusable_files(tmp_path, text, part):
    path = write(tmp_path, text)
    assert part in message(path) and path in message(path)


def test_missing_and_unreadable_files(tmp_path):
    assert "no config file" in message(str(tmp_path / "none.yaml"))
    assert "infra/presets/tiny.yaml" in message("presets/tinny.yaml")
    assert "is a folder" in message(str(tmp_path))
    (tmp_path / "latin.yaml").write_bytes(b"run: {name: \xe9}")
    assert "not UTF-8" in message(str(tmp_path / "latin.yaml"))


def test_merge_keys_and_anchors_work(tmp_path):
    path = write(
        tmp_path,
        "problems:\n  train:\n  - &base {name: chain_sum, size: 5}\n  - {<<: *base, name: search}\n",
    )
    assert [(s.name, s.size) for s in load_config(path, []).problems.train] == [("chain_sum", 5), ("search", 5)]


def test_yaml_round_trip(tmp_path):
    overrides = ["learner.lr=1e-7", "problems.prompt_suffix='1e3'", "run.name='0017'", "tracking.uri='off'"]
    cfg = load_config(None, [*overrides, "problems.train=[{kind: parquet, path: a/b.parquet}]"])
    again = load_config(write(tmp_path, to_yaml(cfg)), [])
    assert again == cfg and config_digest(again) == config_digest(cfg)


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12),
    st.sampled_from("1e3 off yes 010 0x10 1:30 2024-01-01 .inf ~ << = 1_0 - !x".split()),
)  # fmt: skip


@given(st.dictionaries(st.text(min_size=1, max_size=6), st.one_of(plain, st.lists(plain, max_size=3)), max_size=4))
def test_what_is_written_reads_back_the_same(data):
    back = yaml_text.parse(yaml_text.dump(data))
    assert back == data and repr(back) == repr(data)


def test_yaml_errors_are_one_line():
    with pytest.raises(yaml.YAMLError) as caught:
        yaml_text.parse("a: [1\nb: 2")
    assert "\n" not in yaml_text.one_line(caught.value)


def test_digest_follows_the_content_only():
    base = load_config(None, [])
    assert len(config_digest(base)) == 64
    assert config_digest(base) == config_digest(load_config(None, ["run.seed=0"]))
    assert config_digest(base) != config_digest(load_config(None, ["run.seed=1"]))


def test_digest_does_not_depend_on_where_the_repository_lies(monkeypatch):
    monkeypatch.chdir(ROOT)
    cfg = load_config(None, ["model.path=infra/presets"])
    resolved = resolve_paths(cfg)
    assert resolved.model.path == str(ROOT / "infra/presets") and config_digest(resolved) == config_digest(cfg)


def test_paths_go_by_current_directory_then_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cfg = load_config(None, ["model.path=infra/presets", "problems.train=[{kind: jsonl, path: here.jsonl}]"])
    (tmp_path / "here.jsonl").write_text("")
    resolved = resolve_paths(cfg)
    assert resolved.model.path == str(ROOT / "infra/presets")
    assert resolved.problems.train[0].path == str(tmp_path / "here.jsonl")
    assert resolved.storage.uri == str(tmp_path / "runs")
    (tmp_path / "infra/presets").mkdir(parents=True)
    assert resolve_paths(cfg).model.path == str(tmp_path / "infra/presets")
    missing = resolve_paths(load_config(None, ["model.path=no/where", "storage.uri=s3://b/p"]))
    assert missing.model.path == "no/where" and missing.storage.uri == "s3://b/p"


def test_import_stays_light():
    code = (
        "import sys, time; t = time.perf_counter(); import pipeline.config; s = time.perf_counter() - t\n"
        "heavy = {'torch', 'ray', 'vllm', 'numpy', 'mlflow', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\nprint(s)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
