"""The ledger of samples: what is written comes back, torn lines are counted, other identities are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.evaluation import ScoredTrace
from pipeline.evaluation.samples import SampleLedger, first_difference, from_line, key_of, to_line
from pipeline.traces import Stop, Trace, VersionSpan

IDENTITY = {"model": {"digest": "abc"}, "sampling": {"temperature": 0.6, "seed": 0}}


def sample(number=0, problem="p", correct=True, text="Wait\u2028龘 🪿\n"):
    spans = (VersionSpan(3, 0, 2), VersionSpan(4, 2, 5))
    trace = Trace(problem, number, (1, 2), (5, 6, 7, 8, 9), (0.0,) * 5, spans, Stop.LENGTH, text)
    return ScoredTrace(trace, ((0, 2), (2, 3)), 3, 4, 1, correct, 2)


def ledger(path, *samples, mark=None):
    kept = SampleLedger(path)
    kept.begin(IDENTITY)
    kept.add(samples, mark)
    return kept


def test_samples_come_back_as_they_were(tmp_path):
    path = tmp_path / "samples.jsonl"
    given_ = [sample(0), sample(1, correct=None), sample(0, "q", correct=False)]
    ledger(path, *given_)
    again = SampleLedger(path)
    again.begin(IDENTITY)
    assert list(again.samples.values()) == given_ and again.torn == 0
    assert list(again.samples) == [("p", 0), ("p", 1), ("q", 0)]
    assert json.loads(path.read_text(encoding="utf-8").split("\n")[0]) == {"format": 1, "identity": IDENTITY}


@given(st.text(st.characters(exclude_categories=[])), st.sampled_from([True, False, None]))
def test_any_text_survives(text, correct):
    whole = json.dumps(to_line(sample(text=text, correct=correct)), ensure_ascii=False)
    assert "\n" not in whole
    line = whole.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    assert from_line(json.loads(line)) == sample(text=text, correct=correct)


def test_odd_text_survives_the_file(tmp_path):
    path = tmp_path / "samples.jsonl"
    odd = sample(text="\ud800 \u2028 \x85 \r\n \x00")
    ledger(path, odd)
    assert list(SampleLedger(path).samples.values()) == [odd]


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_counted_and_written_anew(tmp_path, cut):
    path = tmp_path / "samples.jsonl"
    ledger(path, sample(0), sample(1))
    path.write_bytes(path.read_bytes()[:-cut])
    again = SampleLedger(path)
    assert (again.torn, list(again.samples)) == (1, [("p", 0)])
    again.begin(IDENTITY)
    again.add([sample(1)])
    third = SampleLedger(path)
    assert (third.torn, list(third.samples)) == (0, [("p", 0), ("p", 1)])


def test_a_torn_first_line_is_no_identity(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"format": 1, "ident')
    again = SampleLedger(path)
    assert again.torn == 1 and again.identity is None
    again.begin(IDENTITY)
    assert SampleLedger(path).identity == IDENTITY


@pytest.mark.parametrize("damage", ['{"problem": "p"}', "x", "[]", '{"problem": "p", "token_ids": 3}'])
def test_damage_in_the_middle_is_told(tmp_path, damage):
    path = tmp_path / "samples.jsonl"
    ledger(path, sample(0))
    path.write_text(f"{path.read_text(encoding='utf-8')}{damage}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"samples.jsonl line 3 is damaged"):
        SampleLedger(path)


def test_another_format_is_told(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"format": 99, "identity": {}}\n')
    with pytest.raises(UserError, match="line 1 is damaged.*format 99"):
        SampleLedger(path)


@pytest.mark.parametrize(
    "other,named",
    [
        ({**IDENTITY, "model": {"digest": "def"}}, "model.digest is abc, now it is def"),
        ({**IDENTITY, "sampling": {"temperature": 1.0, "seed": 0}}, "sampling.temperature is 0.6, now it is 1.0"),
        ({"model": IDENTITY["model"]}, "sampling is .*, now it is None"),
        ({**IDENTITY, "judge": "model"}, "judge is None, now it is model"),
    ],
)
def test_another_identity_is_refused_and_nothing_written(tmp_path, other, named):
    path = tmp_path / "samples.jsonl"
    ledger(path, sample(0))
    before = path.read_bytes()
    with pytest.raises(UserError, match=f"samples of another evaluation: its {named}; choose another run.name"):
        SampleLedger(path).begin(other)
    assert path.read_bytes() == before


def test_an_identity_is_compared_as_it_is_written(tmp_path):
    path = tmp_path / "samples.jsonl"
    kept = SampleLedger(path)
    kept.begin({"budgets": (1, 2)})
    kept.begin({"budgets": [1, 2]})
    SampleLedger(path).begin({"budgets": (1, 2)})


def test_a_sample_is_kept_once(tmp_path):
    path = tmp_path / "samples.jsonl"
    kept = ledger(path, sample(0))
    kept.add([sample(0, correct=False), sample(1)])
    assert [s.correct for s in SampleLedger(path).samples.values()] == [True, True]


def test_the_key_of_a_sample():
    assert key_of(sample(1, "q")) == ("q", 1)


def test_marks_are_counted_over_calls(tmp_path):
    path = tmp_path / "samples.jsonl"
    ledger(path, sample(0), sample(1), mark="v3-ab")
    again = SampleLedger(path)
    again.begin(IDENTITY)
    again.add([sample(2)], "v4-cd")
    assert again.marks == SampleLedger(path).marks == {"v3-ab": 2, "v4-cd": 1}


def test_nothing_is_added_before_the_first_line(tmp_path):
    with pytest.raises(RuntimeError, match="no first line"):
        SampleLedger(tmp_path / "samples.jsonl").add([sample(0)])


def test_first_difference():
    assert first_difference({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ("a.c", 2, 3)
    assert first_difference({"a": 1}, {"a": 1}) is None and first_difference([1], [2]) == ("", [1], [2])
