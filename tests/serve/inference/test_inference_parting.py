"""However the text is cut, the same thinking and the same answer come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.inference.parting import Parting

START, END = "<think>", "</think>"


def parted(pieces, *, thinking=True, marks=(START, END)):
    parting = Parting(*marks, thinking=thinking)
    found = [part for piece in pieces for part in parting.feed(piece)] + list(parting.rest())
    assert all(text for _, text in found)
    return tuple("".join(text for phase, text in found if phase == wanted) for wanted in ("reasoning", "answer"))


@pytest.mark.parametrize(
    ("text", "thinking", "reasoning", "answer"),
    [
        ("a b</think>c", True, "a b", "c"),
        ("<think>a</think>c", False, "a", "c"),
        ("<think>a</think>c", True, "a", "c"),
        ("never ends", True, "never ends", ""),
        ("plain", False, "", "plain"),
        ("x<think>y", False, "y", "x"),
        ("a</think>b</think>c", True, "a", "b</think>c"),
        ("a < b </thin", True, "a < b </thin", ""),
        ("", True, "", ""),
    ],
)
def test_parts(text, thinking, reasoning, answer):
    assert parted([text], thinking=thinking) == (reasoning, answer)
    assert parted(list(text), thinking=thinking) == (reasoning, answer)


def test_without_marks_all_is_answer():
    assert parted(["a</think>b"], marks=("", ""), thinking=True) == ("", "a</think>b")


def test_what_is_certain_comes_at_once():
    parting = Parting(START, END, thinking=True)
    assert list(parting.feed("so </")) == [("reasoning", "so ")]
    assert list(parting.feed("b>")) == [("reasoning", "</b>")]


@given(st.text("</thinkab>", max_size=60), st.data(), st.booleans())
def test_cuts_do_not_matter(text, data, thinking):
    text = text.replace("a", START).replace("b", END)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parted(pieces, thinking=thinking) == parted([text], thinking=thinking)
