"""Cutting a trace: worked cases by hand, both matching modes, and the partition for any input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.traces import Marks, prefix_length, segment, split_thinking

IDS = {name: i for i, name in enumerate("a b c d e f g x y z N E Wait But Let Therefore".split())}
MARKS = Marks(
    split_ids=frozenset(IDS[w] for w in ("Wait", "But", "Let", "Therefore")),
    newline_ids=frozenset({IDS["N"]}),
    think_end_id=IDS["E"],
)


def ids(text):
    return [IDS[name] for name in text.split()]


def ends(text):
    return [end for _, end in segment(ids(text), MARKS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a N b Wait c N d But e N Let f N g E x y", [3, 7, 14]),
        ("a b Wait c But d E x", [6]),
        ("a N b Wait c N d E x Therefore y N z", [3, 7]),  # split words of the answer are not in any segment
        ("a N b E x", [3]),
        ("Wait a N b Wait Wait c N d E x", [4, 9]),
        ("N a N", [3]),
        ("N a N Wait b N c", [3, 7]),  # newlines around one token count as multi-line
        ("N N Wait b N c", [6]),  # newlines alone do not
        ("a N b", [3]),  # no tag: the whole response
        ("E x Wait y", []),  # empty thinking
        ("", []),
    ],
)
def test_worked_cases(text, expected):
    assert ends(text) == expected


def test_only_the_first_tag_cuts_and_all_are_counted():
    thinking = split_thinking(ids("a N b E x E y"), MARKS)
    assert (thinking.think_length, thinking.answer_start, thinking.ends_seen) == (3, 4, 2)
    assert ends("a N b E x E y") == [3]


def test_no_tag_means_all_thinking():
    thinking = split_thinking(ids("a N b"), MARKS)
    assert (thinking.think_length, thinking.answer_start, thinking.ends_seen) == (3, 3, 0)


@given(st.lists(st.sampled_from(sorted(IDS.values())), max_size=60))
def test_segments_concatenate_to_the_thinking_part(tokens):
    spans = segment(tokens, MARKS)
    thinking = split_thinking(tokens, MARKS)
    covered = [i for start, end in spans for i in range(start, end)]
    assert covered == list(range(thinking.think_length))
    assert all(start < end for start, end in spans)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_labels_after_the_first_right_segment_never_move_the_prefix(lengths, data):
    edges = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    spans = list(zip(edges, edges[1:], strict=False))
    first = data.draw(st.integers(0, len(spans) - 1))
    rest = data.draw(st.lists(st.booleans(), min_size=len(spans) - first - 1, max_size=len(spans) - first - 1))
    assert prefix_length(spans, [False] * first + [True] + rest) == spans[first][1]
    assert prefix_length(spans, [False] * first + [True]) == spans[first][1]


def test_no_right_segment_has_no_prefix():
    assert prefix_length([(0, 3), (3, 5)], [False, False]) is None
    assert prefix_length([], []) is None


def test_whole_words_are_matched_by_id(word_tokenizer):
    marks = Marks.from_tokenizer(word_tokenizer)
    assert not marks.by_text
    assert len(marks.split_ids) == 12
    assert len(marks.newline_ids) == 1  # the first token of " \n" is a lone space, of ".\n" a period: left out
    tokens = word_tokenizer.encode("a\nb Wait c\nd But e\n Let f\ng</think> x y", add_special_tokens=False)
    spans = segment(tokens, marks)
    assert [word_tokenizer.decode(tokens[a:b]) for a, b in spans] == ["a\nb", " Wait c\nd", " But e\n Let f\ng"]


def test_text_mode_gives_the_same_segments_as_id_mode(word_tokenizer):
    by_id = Marks.from_tokenizer(word_tokenizer)
    by_text = Marks(think_end="</think>", by_text=True, tokenizer=word_tokenizer)
    texts = ("a\nb Wait c\nd But e\n Let f\ng</think> x y", "a b Wait c But d</think>x", "Wait a\nb Wait Wait c\nd")
    for text in texts:
        tokens = word_tokenizer.encode(text, add_special_tokens=False)
        assert segment(tokens, by_text) == segment(tokens, by_id)
        assert split_thinking(tokens, by_text) == split_thinking(tokens, by_id)


def test_words_of_several_tokens_fall_back_to_text(byte_tokenizer):
    marks = Marks.from_tokenizer(byte_tokenizer)
    assert marks.by_text
    text = "3+4\nis 7. Hmm, check\nthat. Letter by letter\nit is 7.</think>Let it be.\nWait\n7"
    tokens = byte_tokenizer.encode(text, add_special_tokens=False)
    spans = segment(tokens, marks)
    texts = [byte_tokenizer.decode(tokens[a:b]) for a, b in spans]
    assert texts == ["3+4\nis 7.", " Hmm, check\nthat. Letter by letter\nit is 7."]


def test_a_tag_of_several_tokens_is_found_by_text(untagged_tokenizer):
    text = "3+4\nis 7.</think>Let\nit\nbe 7.</think>"
    tokens = untagged_tokenizer.encode(text, add_special_tokens=False)
    thinking = split_thinking(tokens, untagged_tokenizer)
    assert untagged_tokenizer.decode(tokens[: thinking.think_length]) == "3+4\nis 7."
    assert untagged_tokenizer.decode(tokens[thinking.answer_start :]) == "Let\nit\nbe 7.</think>"
    assert thinking.ends_seen == 2
    assert [end for _, end in segment(tokens, untagged_tokenizer)] == [thinking.think_length]


def test_an_unknown_word_token_is_not_a_split_word():
    class Unknown:
        def encode(self, text, *, add_special_tokens=True):
            return [1] if text in ("\n", "</think>") else [0]

        def decode(self, token_ids, *, skip_special_tokens=False):
            return "".join({0: "<unk>", 1: "\n</think>"}[i] for i in token_ids)

    assert Marks.from_tokenizer(Unknown()).by_text


class Deaf:
    """Writes everything but what it is told not to."""

    def __init__(self, missing):
        self.missing = missing

    def encode(self, text, *, add_special_tokens=True):
        return [ord(c) for c in text.replace(self.missing, "")]

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(map(chr, token_ids))


def test_a_tag_or_newline_that_cannot_be_written_is_refused():
    with pytest.raises(UserError, match="end-of-think tag '</think>'"):
        Marks.from_tokenizer(Deaf("</think>"))
    with pytest.raises(UserError, match="newline"):
        Marks.from_tokenizer(Deaf("\n"))
    with pytest.raises(UserError, match="empty"):
        Marks.from_tokenizer(Deaf("~"), think_end="")


PIECES = ["Wait", " But", "\n", "\n\n", "é", "🪿", "</think>", " x", "7.", "Let's"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_text_mode_partitions_any_trace(byte_tokenizer, parts):
    tokens = byte_tokenizer.encode("".join(parts), add_special_tokens=False)
    spans = segment(tokens, Marks.from_tokenizer(byte_tokenizer))
    covered = [i for start, end in spans for i in range(start, end)]
    assert covered == list(range(split_thinking(tokens, byte_tokenizer).think_length))
