"""Benchmarks from small files with the real sets' columns: what is asked, what counts as right, what is refused."""

import base64
import json
import pickle
import zlib

import pytest

from pipeline.config import Evaluation, UserError, load_config
from pipeline.evaluation.graders import grader_for
from pipeline.evaluation.suites import SUITES, Kind, find_suite, load_suite, spread, suite_digest
from pipeline.grading import Verdict
from pipeline.problems.sources import RAW
from tests.evaluation.benchmark_rows import ROWS, gpqa, livecodebench, olympiad, packed, right_answer, write_rows

CFG = load_config(None, [])
SIZES = {"aime24": 4, "aime25": 4, "amc23": 3, "math500": 6, "olympiad": 3, "gpqa-diamond": 6, "livecodebench-v6": 4}


def load(name, tmp_path, rows=None, kind="jsonl"):
    file = write_rows(tmp_path / f"{name}.{kind}", ROWS[name]() if rows is None else rows)
    return load_suite(find_suite(name), CFG, file)


@pytest.mark.parametrize("name", SIZES)
def test_the_whole_file_becomes_problems(name, tmp_path):
    problems = load(name, tmp_path)
    assert len(problems) == SIZES[name] == len({problem.id for problem in problems})
    assert all(problem.id.startswith(f"{name}/") and problem.source == name for problem in problems)
    assert all(problem.prompt and problem.gold for problem in problems)
    if name != "amc23":  # parquet keeps 120.0 a number, as jsonl does
        assert load(name, tmp_path, kind="parquet") == problems


@pytest.mark.parametrize("name", SIZES)
def test_gold_answers_are_right_and_those_of_other_problems_are_not(name, tmp_path):
    problems = load(name, tmp_path)
    grade = grader_for(SUITES[name].kind, Evaluation(code_seconds=10))
    answers = [right_answer(problem) for problem in problems]
    assert [grade(a, p, 1) for a, p in zip(answers, problems, strict=True)] == [Verdict.RIGHT] * len(problems)
    shuffled = [grade(a, p, 1) for a, p in zip(answers[1:] + answers[:1], problems, strict=True)]
    assert Verdict.UNKNOWN not in shuffled
    assert shuffled.count(Verdict.RIGHT) <= (2 if name == "gpqa-diamond" else 1)  # of four letters some coincide
    assert {grade(a, p, ends) for a, p in zip(answers, problems, strict=True) for ends in (0, 2)} == {Verdict.WRONG}


def test_protocols_are_the_papers():
    stated = {name: suite.protocol for name, suite in SUITES.items() if name != "tiny"}
    assert {(p.temperature, p.top_p, p.max_new_tokens) for p in stated.values()} == {(0.6, 0.95, 16384)}
    assert {name: protocol.samples for name, protocol in stated.items()} == {
        "aime24": 128,
        "aime25": 128,
        "amc23": 128,
        "math500": 16,
        "olympiad": 16,
        "gpqa-diamond": 16,
        "livecodebench-v6": 10,
    }
    assert [SUITES[n].problems for n in ("aime24", "aime25", "amc23", "math500", "olympiad", "gpqa-diamond")] == [
        30, 30, 40, 500, 581, 198,
    ]  # fmt: skip


def test_levels_are_those_the_sets_state(tmp_path):
    assert [p.meta["level"] for p in load("math500", tmp_path)] == [f"level {n}" for n in (1, 2, 2, 4, 5, 3)]
    assert {p.meta["level"] for p in load("livecodebench-v6", tmp_path)} == {"easy", "hard"}
    assert load("gpqa-diamond", tmp_path)[2].meta["level"] == "Post-graduate level"
    assert not any("level" in p.meta for name in ("aime24", "amc23", "olympiad") for p in load(name, tmp_path))


def test_a_size_other_than_the_papers_is_told(tmp_path, caplog):
    load("aime24", tmp_path)
    assert "has 4 problems; the paper used 30" in caplog.text


def test_problems_with_several_answers_are_left_out_and_counted(tmp_path, caplog):
    problems = load("olympiad", tmp_path)
    assert [p.gold for p in problems] == ["55", "97", "1"]
    assert "1 of 4 rows are left out" in caplog.text


def test_an_empty_answer_is_told(tmp_path):
    rows = olympiad()
    rows[1]["final_answer"] = []
    with pytest.raises(UserError, match="no answer .* in column 'final_answer' of row 1"):
        load("olympiad", tmp_path, rows)


def test_the_gold_letter_follows_the_shuffled_choices(tmp_path):
    problems = load("gpqa-diamond", tmp_path)
    for problem, row in zip(problems, gpqa(), strict=True):
        question, _, *choices = problem.prompt.split("\n")
        assert question == row["Question"] and [line[:3] for line in choices] == ["A) ", "B) ", "C) ", "D) "]
        assert choices["ABCD".index(problem.gold)][3:] == row["Correct Answer"]
        assert {line[3:] for line in choices} == {
            row["Correct Answer"],
            *(row[f"Incorrect Answer {i}"] for i in (1, 2, 3)),
        }
    assert len({problem.gold for problem in problems}) > 1  # not always the first, as in the file


def test_the_order_of_choices_depends_on_the_question_alone(tmp_path):
    every, last = load("gpqa-diamond", tmp_path), load("gpqa-diamond", tmp_path, gpqa()[-1:])
    assert every[-1].prompt == last[0].prompt and every[-1].gold == last[0].gold
    assert load_suite(
        find_suite("gpqa-diamond"), load_config(None, ["run.seed=9"]), str(tmp_path / "gpqa-diamond.jsonl")
    )


def test_a_question_without_four_choices_is_refused(tmp_path):
    rows = gpqa()
    rows[3]["Incorrect Answer 2"] = None
    with pytest.raises(UserError, match="rec0003 lacks one of Correct Answer"):
        load("gpqa-diamond", tmp_path, rows)


def test_programs_are_asked_for_with_their_starter_code(tmp_path):
    from_input, _, from_starter, _ = load("livecodebench-v6", tmp_path)
    assert "standard input" in from_input.prompt and "starter" not in from_input.prompt
    assert "def largest(self, nums: List[int], k: int)" in from_starter.prompt
    assert from_starter.meta["function"] == "largest" and len(from_starter.meta["tests"]) == 3
    assert from_input.gold.startswith("2 tests ")


def changed(**columns):
    return [{**livecodebench()[0], **columns}]


class Runs:
    """Unpickling this would run something."""

    def __reduce__(self):
        return print, ("this was run",)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickled_tests_are_refused_and_never_read(tmp_path, protocol, capsys):
    text = base64.b64encode(zlib.compress(pickle.dumps(Runs(), protocol))).decode()
    with pytest.raises(UserError, match="3001_A: private_test_cases is a pickle.*refused.*--suite-file"):
        load("livecodebench-v6", tmp_path, changed(private_test_cases=text))
    assert "this was run" not in capsys.readouterr().out


def test_no_module_of_ours_can_unpickle():
    import ast
    from pathlib import Path

    import pipeline.evaluation

    for file in Path(pipeline.evaluation.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
            assert not {"pickle", "_pickle", "marshal", "shelve", "dill", "joblib"} & set(names), file


@pytest.mark.parametrize(
    "columns,reason",
    [
        ({"private_test_cases": "%%%"}, "neither JSON nor packed JSON"),
        ({"private_test_cases": base64.b64encode(b"not packed").decode()}, "neither JSON nor packed JSON"),
        ({"private_test_cases": base64.b64encode(zlib.compress(b"cos\nsystem\n")).decode()}, "is not JSON"),
        ({"private_test_cases": packed({"input": "1"})}, "is not a list of tests"),
        ({"public_test_cases": '[{"input": "1"}]'}, "a test without input, output or testtype"),
        ({"public_test_cases": "[]", "private_test_cases": ""}, "has no tests"),
        ({"public_test_cases": "[", "private_test_cases": ""}, "public_test_cases is not JSON"),
        ({"public_test_cases": json.dumps([{"input": "1", "output": "1", "testtype": "functional"}])}, "no func_name"),
    ],
)
def test_tests_that_cannot_be_used(tmp_path, columns, reason):
    with pytest.raises(UserError, match=f"3001_A.*{reason}"):
        load("livecodebench-v6", tmp_path, changed(**columns))


def test_packed_tests_that_unpack_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.evaluation.suites.programs.MOST_BYTES", 1000)
    tests = [{"input": "1" * 5000, "output": "1", "testtype": "stdin"}]
    with pytest.raises(UserError, match="unpacks to more than"):
        load("livecodebench-v6", tmp_path, changed(private_test_cases=packed(tests)))


def test_plain_json_does_for_private_tests(tmp_path):
    tests = [{"input": "2 2", "output": "4", "testtype": "stdin"}]
    (problem,) = load("livecodebench-v6", tmp_path, changed(private_test_cases=json.dumps(tests)))
    assert len(problem.meta["tests"]) == 2


def test_missing_columns_are_listed(tmp_path):
    rows = [{"question": "What?", "answer": "1", "id": 1}]
    with pytest.raises(UserError, match="is not a file of 'aime24': no column problem; found: answer, id, question"):
        load("aime24", tmp_path, rows)
    with pytest.raises(UserError, match="no column Question, Correct Answer, Record ID, Correct Answer, Incorrect"):
        load("gpqa-diamond", tmp_path, rows)


def test_no_rows(tmp_path):
    with pytest.raises(UserError, match="holds no rows"):
        load("aime24", tmp_path, [])


def test_names_and_files_that_are_none():
    with pytest.raises(UserError, match="no suite 'math50'; did you mean 'math500'"):
        find_suite("math50")
    with pytest.raises(UserError, match="neither .jsonl nor .parquet"):
        load_suite(find_suite("aime24"), CFG, "rows.csv")
    with pytest.raises(UserError, match="takes no --suite-file"):
        load_suite(find_suite("tiny"), CFG, "rows.jsonl")
    with pytest.raises(UserError, match="--suite-file none.jsonl: there is no such file"):
        load_suite(find_suite("aime24"), CFG, "none.jsonl")


def test_the_hub_gets_id_subset_and_split(monkeypatch):
    asked = []

    def hub(source):
        asked.append((source.name, source.split, source.options))
        return gpqa()

    monkeypatch.setitem(RAW, "hub", hub)
    assert len(load_suite(find_suite("gpqa-diamond"), CFG)) == 6
    assert asked == [("Idavidrein/gpqa", "train", {"config": "gpqa_diamond"})]


def test_the_tiny_world_has_all_three_families():
    cfg = load_config("infra/presets/tiny.yaml", ["problems.held_out.0.size=20", "problems.held_out.1.size=30"])
    problems = load_suite(find_suite("tiny"), cfg)
    counts = {name: sum(p.source == f"tiny/{name}" for p in problems) for name in ("chain_sum", "search", "compare")}
    assert counts == {"chain_sum": 20, "search": 30, "compare": 30}
    assert load_suite(find_suite("tiny"), load_config(None, ["problems.held_out=[]"]))[-1].source == "tiny/compare"
    assert SUITES["tiny"].kind is Kind.MATH and SUITES["tiny"].protocol is None


def test_the_digest_sees_whatever_is_asked_or_counts(tmp_path):
    problems = load("livecodebench-v6", tmp_path)
    same = suite_digest(load("livecodebench-v6", tmp_path), "")
    rows = livecodebench()
    rows[0]["public_test_cases"] = rows[0]["public_test_cases"].replace('"3"', '"4"')
    others = [
        suite_digest(problems, "think"),
        suite_digest(problems[:3], ""),
        suite_digest(problems[::-1], ""),
        suite_digest(load("livecodebench-v6", tmp_path, rows), ""),
    ]
    assert suite_digest(problems, "") == same and len({same, *others}) == 5


def test_a_part_keeps_every_source():
    numbers = list(range(450))
    part = spread(numbers, 60)
    assert len(part) == 60 and [sum(low <= n < low + 150 for n in part) for low in (0, 150, 300)] == [20, 20, 20]
    assert spread(numbers, None) == spread(numbers, 1000) == numbers and spread(numbers, 1) == [0]
