"""Columns, answers, ids and duplicates, for rows of any origin."""

import hashlib
import json
import logging
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Source, UserError
from pipeline.problems import load_problems, overlap
from pipeline.problems.problem import Problem
from pipeline.problems.rows import gold_text, listed, prompt_text, stable_id


def source(path, kind=None, **more):
    return Source(kind=kind or path.suffix[1:], path=str(path), **more)


def save(folder, rows, kind, name="set"):
    file = folder / f"{name}.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        file.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    return file


def load(folder, rows, kind="jsonl", name="set", **more):
    return load_problems([source(save(folder, rows, kind, name), **more)], 0)


def error(*args, **kwargs):
    with pytest.raises(UserError) as caught:
        load(*args, **kwargs)
    return str(caught.value)


QUESTIONS = ["1 + 1?", "2 + 2?", "3 + 3?"]
VARIANTS = {
    "plain": ([{"prompt": q, "gold": str(i)} for i, q in enumerate(QUESTIONS)], {}),
    "named": (
        [{"question": q, "answer": str(i)} for i, q in enumerate(QUESTIONS)],
        {"prompt": "question", "gold": "answer"},
    ),
    "nested": (
        [{"reward_model": {"style": "rule", "ground_truth": str(i)}, "prompt": q} for i, q in enumerate(QUESTIONS)],
        {"gold": "reward_model.ground_truth"},
    ),
    "messages": (
        [
            {"prompt": [{"role": "system", "content": "Be short."}, {"role": "user", "content": q}], "gold": str(i)}
            for i, q in enumerate(QUESTIONS)
        ],
        {},
    ),
    "solution_too": (
        [{"prompt": q, "solution": f"so \\boxed{{{i}}}", "answer": str(i)} for i, q in enumerate(QUESTIONS)],
        {"gold": "answer"},
    ),
    "null_column": ([{"extra": None, "gold": i, "prompt": q} for i, q in enumerate(QUESTIONS)], {}),
}


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_shapes_data_sets_come_in_give_the_same_problems(tmp_path, kind, variant):
    rows, columns = VARIANTS[variant]
    problems = load(tmp_path, rows, kind, columns=columns)
    assert [(p.prompt, p.gold) for p in problems] == [(q, str(i)) for i, q in enumerate(QUESTIONS)]
    assert [p.meta["row"] for p in problems] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_unknown_column_lists_wanted_and_found(tmp_path, kind):
    text = error(tmp_path, [{"question": "q", "reward_model": {"ground_truth": "1"}}], kind)
    for part in ("columns.prompt=prompt", "columns.gold=gold", "question", "reward_model.ground_truth"):
        assert part in text


def test_the_column_taken_is_logged_when_others_would_do(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    rows, columns = VARIANTS["solution_too"]
    load(tmp_path, rows, columns=columns)
    assert "gold is read from 'answer'; also there: solution" in caplog.text


def test_a_dot_in_a_real_column_name(tmp_path):
    assert load(tmp_path, [{"prompt": "q", "a.b": "1"}], columns={"gold": "a.b"})[0].gold == "1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5/8", "5/8"), (" 7 ", " 7 "), (7, "7"), (-3, "-3"), (2.5, "2.5"), (5.0, "5"), (Decimal("1.50"), "1.50"),
        (10**30, str(10**30)), (None, None), ("", None), ("  ", None), (float("nan"), None), (float("inf"), None),
        (True, None), (["5"], None), ({"a": 1}, None), (b"5", None),
    ],
)  # fmt: skip
def test_answers_as_text(value, text):
    assert gold_text(value) == text


def test_prompts_as_text():
    turns = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "last"},
    ]
    parts = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}
    ]
    assert prompt_text(turns) == "last" and prompt_text(parts) == "ab" and prompt_text(" x") == " x"
    for nothing in (None, "", [], 5, [{"role": "system", "content": "x"}], [{"role": "user", "content": None}]):
        assert prompt_text(nothing) is None


def test_rows_without_an_answer_are_listed(tmp_path):
    rows = [{"prompt": f"q{i}", "gold": None if i % 2 else "1"} for i in range(20)]
    text = error(tmp_path, rows)
    assert "rows 1, 3, 5, 7, 9 and 5 more (10 in all, counted from 0)" in text and "set.jsonl" in text
    assert "row 1 (counted from 0)" in error(tmp_path, [{"prompt": "a", "gold": 1}, {"prompt": "b", "gold": [1]}])
    assert "row 1" in error(tmp_path, [{"prompt": "a", "gold": 1}, {"prompt": "b"}])
    assert "no prompt text" in error(tmp_path, [{"prompt": "", "gold": 1}])
    assert len(load(tmp_path, rows, bad_rows="drop")) == 10


def test_listing():
    assert listed([4]) == "row 4 (counted from 0)"
    assert listed([1, 2]) == "rows 1, 2 (2 in all, counted from 0)"


def test_one_id_for_two_problems(tmp_path):
    rows = [
        {"id": "a", "prompt": "x", "gold": 1},
        {"id": "b", "prompt": "y", "gold": 2},
        {"id": "a", "prompt": "z", "gold": 3},
    ]
    text = error(tmp_path, rows, columns={"id": "id"})
    assert "same id" in text and "rows 0, 2" in text
    assert [p.id for p in load(tmp_path, rows, columns={"id": "id"}, bad_rows="drop")] == ["b"]


def test_one_prompt_with_two_answers(tmp_path):
    rows = [{"prompt": "x", "gold": 5}, {"prompt": "y", "gold": 1}, {"prompt": "x", "gold": 6}]
    text = error(tmp_path, rows, "parquet")
    assert "same prompt" in text and "rows 0, 2" in text
    assert [p.prompt for p in load(tmp_path, rows, "parquet", bad_rows="drop")] == ["y"]


def test_contradiction_between_two_files_names_both(tmp_path):
    one = save(tmp_path, [{"prompt": "x", "gold": 5}], "jsonl", "one")
    two = save(tmp_path, [{"prompt": "y", "gold": 5}, {"prompt": "x", "gold": 6}], "jsonl", "two")
    with pytest.raises(UserError) as caught:
        load_problems([source(one), source(two)], 0)
    assert "one.jsonl, row 0" in str(caught.value) and "two.jsonl, row 1" in str(caught.value)


def test_equal_rows_are_dropped_and_counted(tmp_path, caplog):
    rows = [{"id": "a", "prompt": "x", "gold": 5}] * 3 + [{"id": "b", "prompt": "y", "gold": 5}]
    assert [p.id for p in load(tmp_path, rows, columns={"id": "id"})] == ["a", "b"]
    assert "2 of 4 rows repeat" in caplog.text


def test_missing_ids_are_stable(tmp_path):
    rows = [{"prompt": "x", "gold": 5}, {"prompt": "y", "gold": 5}]
    (tmp_path / "elsewhere").mkdir()
    first = load(tmp_path, rows, name="s")
    again = load(tmp_path / "elsewhere", list(reversed(rows)), name="s")
    assert {p.id: p.prompt for p in first} == {p.id: p.prompt for p in again}
    digest = hashlib.sha256(b'["s.jsonl", "x", "5"]').hexdigest()[:16]
    assert first[0].id == stable_id("s.jsonl", "x", "5") == digest and first[0].source == "s.jsonl"
    assert "no id in column 'id' of row 1" in error(tmp_path, [{**rows[0], "id": "k"}, rows[1]], columns={"id": "id"})


def test_a_set_with_every_kind_of_clash(tmp_path, caplog):
    """Eight rows: two share an id, two a prompt with answers 5 and 6, one is held out too, and one lacks its id."""
    rows = [{"id": f"r{i}", "prompt": f"q{i}", "gold": str(i)} for i in range(8)]
    rows[1]["id"], rows[3]["prompt"] = "r0", "q2"
    rows[2]["gold"], rows[3]["gold"] = "5", "6"
    assert "same id for different problems" in error(tmp_path, rows, columns={"id": "id"})
    assert "same prompt with different answers" in error(tmp_path, rows)
    left = load(tmp_path, rows, columns={"id": "id"}, bad_rows="drop")
    assert {p.id: (p.prompt, p.gold) for p in left} == {f"r{i}": (f"q{i}", str(i)) for i in range(4, 8)}
    held_out = load(tmp_path, [{"prompt": "q7", "gold": "7"}, {"prompt": "new", "gold": "1"}], name="held_out")
    assert overlap(left, held_out) == ["q7"] and "1 of 2 held-out prompts" in caplog.text
    del rows[5]["id"]
    assert "no id in column 'id' of row 5" in error(tmp_path, rows, columns={"id": "id"})
    without = [load(tmp_path, rows, bad_rows="drop") for _ in range(2)]
    assert without[0] == without[1] and len({p.id for p in without[0]}) == 6


@pytest.mark.slow
def test_any_script_goes_through_ray_unchanged(tmp_path, local_ray):
    def seen(problems):
        return [hashlib.sha256((p.prompt + p.gold).encode()).hexdigest() for p in problems]

    problems = load(tmp_path, [{"prompt": q, "gold": a} for q, a in UNICODE])
    there = local_ray.remote(seen).options(num_cpus=0).remote(problems)
    assert local_ray.get(there, timeout=120) == seen(problems)
    assert local_ray.get(local_ray.put(problems), timeout=60) == problems


UNICODE = [
    ("答案是 \\boxed{６４}", "６４"),
    ("x\u200f = 12\u200e?", "\u200f12"), ("🙂👩‍👩‍👧 + 1", "🙂"), ("e\u0301 or é", "٤٢"),
    ("a\u2028b\u2029c\u0085d\x0be\r\nf", "−7"), ("कितने? เท่าไร", "3{,}5"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_unicode_passes_unchanged(tmp_path, kind):
    problems = load(tmp_path, [{"prompt": q, "gold": a} for q, a in UNICODE], kind)
    assert [(p.prompt.encode(), p.gold.encode()) for p in problems] == [(q.encode(), a.encode()) for q, a in UNICODE]


text = st.text(min_size=1, max_size=20).filter(lambda t: t.strip())


@given(st.dictionaries(text, text, min_size=1, max_size=5))
def test_any_text_is_the_same_through_both_kinds(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("any")
    rows = [{"prompt": q, "gold": a} for q, a in pairs.items()]
    for kind in ("parquet", "jsonl"):
        assert {p.prompt: p.gold for p in load(folder, rows, kind)} == pairs


def test_overlap_is_found_and_warned_about(caplog):
    def problem(prompt):
        return Problem(prompt, prompt, "1", "s")

    train = [problem("a  b"), problem("c")]
    assert overlap(train, [problem("x"), problem("a b"), problem("a b")]) == ["a b"]
    assert "held-out prompts are also trained on" in caplog.text
    caplog.clear()
    assert overlap(train, [problem("x")]) == [] and not caplog.records
