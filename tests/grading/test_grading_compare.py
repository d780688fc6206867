"""Equal or not: exact numbers, lists, words, and the pairs a lenient checker gets wrong."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.grading import Verdict, counters, grade, same_answer
from pipeline.grading.compare import number, settle

RIGHT, WRONG = Verdict.RIGHT, Verdict.WRONG


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        (r"\frac{1}{2^{80}}", r"\frac{1}{2^{79}}", WRONG),
        (r"\frac{1}{500!}", r"\frac{1}{502!}", WRONG),
        (r"\frac{10^{40}+1}{10^{41}}", r"\frac{1}{10^{41}}", WRONG),
        ("3*x-2*y+5=0", "3x+7y+9=0", WRONG),
        ("0.1", "0.10000001", WRONG),
        (r"0.1\pi", r"0.10000001\pi", WRONG),
        (r"3\pi", "9.42", WRONG),
        ("0.3", "1/3", WRONG),
        (r"10^{20}+1", r"10^{20}", WRONG),
        (r"10^{60}+\pi", r"10^{60}+3", WRONG),
        (r"(1,\sqrt{2})", r"(3,\sqrt{2})", WRONG),
        (r"(2,\sqrt{2})", r"(3,\sqrt{2})", WRONG),  # both are empty as intervals
        ("x>3", "x<3", WRONG),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}", WRONG),
        ("2", "2x", WRONG),
        ("3", r"3\pi", WRONG),
        (r"\frac{5}{8}", "0.625", RIGHT),
        (r"2\sqrt{3}", r"\sqrt{12}", RIGHT),
        ("10!", "3628800", RIGHT),
        ("x^2-1", "(x-1)(x+1)", RIGHT),
        ("2x-y+1=0", "y=2x+1", RIGHT),
        ("x>3", "3<x", RIGHT),
        (r"\{\sqrt{2},-\sqrt{2}\}", r"-\sqrt{2}, \sqrt{2}", RIGHT),
        (r"[1,\sqrt{4}]", "[1,2]", RIGHT),
        ("7/2", r"3\frac{1}{2}", RIGHT),
        ("e^{i\\pi}", "-1", RIGHT),
    ],
)
def test_algebra(gold, answer, verdict):
    assert same_answer(answer, gold) is verdict
    assert grade(rf"\boxed{{{answer}}}", gold) is verdict
    assert counters()["unknown"] == 0


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("12", "12.0", True),
        ("12", "+12", True),
        ("-7", "−7", True),
        ("0.5", r"\dfrac12", True),
        ("1/2", "2/4", True),
        ("5", "x = 5", True),
        ("x=5", "5", True),
        ("x=5", "y=5", False),
        ("b, c", "c, b", True),
        ("b, c", "b and c", True),
        ("b, c", "b, c, d", False),
        ("1, 1, 2", "1, 2, 2", False),  # as often as they occur
        ("1, 2", "2, 1", True),
        ("(1, 2)", "(1,2)", True),
        ("(1, 2)", "(2, 1)", False),
        ("(1, 234)", "(1,234)", True),  # no thousands next to a bracket
        ("[1, 2)", "[1, 2]", False),
        ("{1, 2}", r"\{2, 1\}", True),
        ("5", "5, 6", False),
        ("5", "5 or 6", False),
        ("50", r"50\%", True),
        ("0.5", "50%", True),
        ("12", r"12 \text{ apples}", True),
        ("12", "12cm", True),
        ("12", "13 apples", False),
        ("90", r"90^\circ", True),
        ("5", r"\$5", True),
        ("B", "(B)", True),
        ("B", "C", None),
        ("Monday", "monday", True),
        ("Monday", "Tuesday", False),
        ("yes", "no", False),
        ("1000", "1,000", True),
        ("", "5", False),
    ],
)
def test_plain_comparison_needs_no_algebra(gold, answer, right):
    assert settle(answer, gold) is right


@pytest.mark.parametrize(("text", "value"), [("3/4", Fraction(3, 4)), (r"\frac{-3}{4}", Fraction(-3, 4)), (".5", 0.5)])
def test_numbers_are_exact(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["1/0", "1e999999999", "9" * 2000, "x", "1.2.3", ""])
def test_what_is_not_a_plain_number(text):
    assert number(text) is None


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_compare_as_fractions(a, b):
    written = rf"\frac{{{a.numerator}}}{{{a.denominator}}}"
    assert settle(f"{a.numerator}/{a.denominator}", written) is True
    assert settle(f"{b.numerator}/{b.denominator}", written) is (a == b)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=6), st.randoms())
def test_lists_do_not_depend_on_order(items, rng):
    mixed = list(items)
    rng.shuffle(mixed)
    assert settle(", ".join(map(str, mixed)), ", ".join(map(str, items))) is True
    assert settle(", ".join(map(str, [*mixed[:-1], 100])), ", ".join(map(str, items))) is False


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_pair_can_be_looked_at(a, b):
    assert settle(a, b) in (True, False, None)
