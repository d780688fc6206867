"""Each kind of source: what it gives, and how it fails."""

import json
import subprocess
import sys

import pytest

from pipeline.config import ROOT, Source, UserError
from pipeline.problems import Problem, load_problems
from pipeline.problems import tiny as tiny_world


def fails(*sources):
    with pytest.raises(UserError) as caught:
        load_problems(list(sources), 0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def lines(folder, count, name="data.jsonl"):
    file = folder / name
    file.write_text("\n\n".join(json.dumps({"prompt": f"q{i}", "gold": i}) for i in range(count)) + "\n")
    return str(file)


def test_tiny_gets_its_arguments(monkeypatch):
    calls = []

    def generate(family, size, split, seed, options):
        calls.append((family, size, split, seed, options))
        return [Problem(f"{family}{i}", f"{family} {i}", "1", f"tiny/{family}") for i in range(size)]

    monkeypatch.setattr(tiny_world, "generate", generate)
    sources = [
        Source(kind="tiny", name="chain_sum", size=2, options={"max_terms": 3}),
        Source(kind="tiny", name="search", size=1, split="held_out"),
    ]
    assert [p.id for p in load_problems(sources, 9)] == ["chain_sum0", "chain_sum1", "search0"]
    assert calls == [("chain_sum", 2, "train", 9, {"max_terms": 3}), ("search", 1, "held_out", 9, {})]


def test_nothing_to_work_on(monkeypatch):
    monkeypatch.setattr(tiny_world, "generate", lambda *args: [])
    assert "no problems" in fails(Source(kind="tiny", name="search", size=1))
    assert "no problems" in fails()


def test_first_rows_of_a_file(tmp_path):
    path = lines(tmp_path, 5)
    assert [p.prompt for p in load_problems([Source(kind="jsonl", path=path, size=2)], 0)] == ["q0", "q1"]
    assert [p.prompt for p in load_problems([Source(kind="jsonl", path=path)], 3)] == [f"q{i}" for i in range(5)]
    assert "has 5 rows, size asks for 6" in fails(Source(kind="jsonl", path=path, size=6))


def test_file_by_current_directory(tmp_path, monkeypatch):
    lines(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    assert len(load_problems([Source(kind="jsonl", path="data.jsonl")], 0)) == 1


def test_bad_files(tmp_path):
    assert "no parquet file" in fails(Source(kind="parquet", path=str(tmp_path / "none.parquet")))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "q", "gold": 1}\n{"prompt": \n')
    assert "bad.jsonl line 2 is not valid JSON" in fails(Source(kind="jsonl", path=str(bad)))
    bad.write_text("[1]\n")
    assert "line 1 is not a JSON object" in fails(Source(kind="jsonl", path=str(bad)))
    bad.write_bytes(b'{"prompt": "\xff"}\n')
    assert "not UTF-8" in fails(Source(kind="jsonl", path=str(bad)))
    assert "not a readable parquet file" in fails(Source(kind="parquet", path=str(bad)))
    bad.write_text("")
    assert "no problems" in fails(Source(kind="jsonl", path=str(bad)))


def test_reasoning_gym_task():
    task = Source(kind="reasoning_gym", name="chain_sum", size=6, options={"max_terms": 3})
    problems = load_problems([task], 1)
    assert problems == load_problems([task], 1) and len(problems) == 6
    for problem in problems:
        terms = problem.prompt.split(": ")[1].removesuffix(" =")
        assert eval(terms) == int(problem.gold)
    held_out = load_problems([task.model_copy(update={"split": "held_out"})], 1)
    assert not {p.prompt for p in problems} & {p.prompt for p in held_out}


def test_reasoning_gym_mistakes():
    assert "did you mean 'chain_sum'" in fails(Source(kind="reasoning_gym", name="chain_sums", size=1))
    text = fails(Source(kind="reasoning_gym", name="chain_sum", size=1, options={"max_trems": 3}))
    assert "refuses its options" in text and "max_trems" in text
    assert "refuses" in fails(Source(kind="reasoning_gym", name="chain_sum", size=1, options={"min_terms": -1}))


@pytest.fixture
def hub(monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def serve(result):
        def load_dataset(*args, **kwargs):
            calls.append((args, kwargs))
            if isinstance(result, Exception):
                raise result
            return datasets.Dataset.from_list(result)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    return serve


COLUMNS = {"prompt": "problem", "gold": "answer"}


def test_hub_rows(hub):
    calls = hub([{"problem": f"q{i}", "answer": str(i), "solution": "long"} for i in range(3)])
    source = Source(kind="hub", name="org/set", split="test", size=2, columns=COLUMNS, options={"revision": "abc"})
    problems = load_problems([source], 0)
    assert [(p.prompt, p.gold, p.source) for p in problems] == [("q0", "0", "org/set"), ("q1", "1", "org/set")]
    assert calls == [(("org/set", None), {"split": "test", "revision": "abc"})]
    assert "size asks for 9" in fails(source.model_copy(update={"size": 9}))


@pytest.mark.parametrize(
    "reason", [ConnectionError("no route"), ValueError('Unknown split "trian"'), FileNotFoundError("x")]
)
def test_hub_failures(hub, reason):
    hub(reason)
    text = fails(Source(kind="hub", name="org/set", columns=COLUMNS))
    assert "cannot load org/set (train) from the hub" in text and str(reason) in text


def test_hub_option_unknown():
    text = fails(Source(kind="hub", name="org/set", options={"revison": "x"}))
    assert "unknown option 'revison'; did you mean 'revision'" in text


def test_hub_while_offline_is_one_sentence(tmp_path, monkeypatch):
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    text = fails(Source(kind="hub", name="org/no-such-set"))
    assert "cannot load org/no-such-set (train) from the hub" in text


def test_local_folder_in_the_hubs_layout(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    lines(tmp_path / "set", 3, "train.jsonl")
    problems = load_problems([Source(kind="hub", name=str(tmp_path / "set"))], 0)
    assert [(p.prompt, p.gold) for p in problems] == [("q0", "0"), ("q1", "1"), ("q2", "2")]


def test_import_stays_light():
    code = (
        "import sys, pipeline.problems\n"
        "heavy = {'torch', 'ray', 'vllm', 'datasets', 'pyarrow', 'reasoning_gym'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
