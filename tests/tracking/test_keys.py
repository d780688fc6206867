import posixpath
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tracking.keys import MAX_KEY, MAX_VALUE, as_params, batches, clean_key, cut, flatten, from_ranges, ranges


def test_good_keys_stay_as_they_are():
    for key in ("learner.lr", "resume_1/learner.lr", "a b", "problems.train"):
        assert clean_key(key) == key


def test_odd_keys_are_cleaned_and_stay_apart():
    odd = ["a[0]", "a(0)", "a{0}", "a:0", "/a", "a/", "a//b", "../a", ".", "", "a/./b", "k" * 300, "k" * 299 + "x"]
    cleaned = [clean_key(key) for key in odd]
    assert len(set(cleaned)) == len(odd)
    assert clean_key("a[0]").startswith("a_0_-")


@settings(deadline=None)
@given(st.lists(st.text(max_size=300), unique=True, max_size=30))
def test_any_key_is_accepted_and_none_becomes_another(keys):
    cleaned = [clean_key(key) for key in keys]
    assert len(set(cleaned)) == len(keys)
    for key in cleaned:
        assert 0 < len(key) <= MAX_KEY
        assert re.fullmatch(r"[/\w.\- ]*", key)  # what MLflow takes as a name on every system
        assert posixpath.normpath(key) == key and not key.startswith(("/", ".."))


def test_a_long_value_is_cut_with_a_mark_that_knows_the_rest():
    one, other = cut("x" * 10_000), cut("x" * 9_999 + "y")
    assert len(one) == MAX_VALUE and one != other
    assert re.search(r"\[cut: 10000 characters, sha256 [0-9a-f]{8}, whole in config.yaml\]$", one)
    assert cut("short") == "short"


def test_flatten_gives_dotted_keys_and_json_lists():
    config = {"a": {"b": {"c": 1}, "empty": {}}, "list": [{"x": 1}, [2, None]], "none": None, "on": True}
    assert dict(flatten(config)) == {
        "a.b.c": "1", "a.empty": "{}", "list": '[{"x": 1}, [2, null]]', "none": "None", "on": "True",
    }  # fmt: skip
    assert as_params({"p q[1]": "v"}) == {clean_key("p q[1]"): "v"}


@given(st.sets(st.integers(0, 60)))
def test_ranges_can_be_read_back(numbers):
    assert from_ranges(ranges(numbers)) == numbers


def test_ranges_and_batches():
    assert ranges([3, 1, 2, 7]) == "1-3,7"
    assert [len(batch) for batch in batches(range(250), 100)] == [100, 100, 50]
