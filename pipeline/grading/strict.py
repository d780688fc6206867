"""The second look at a pair that math-verify calls equal. Runs in the worker.

math-verify rounds floats to six places, chops small numbers to zero and compares equations by leftovers of `solve`, so
it also accepts 2^-80 for 2^-79, 1/500! for 1/502! and unrelated equations. Here numbers are compared as exact rationals
or, where they are irrational, to 150 of 200 digits (relative); formulas at three rational points; equations by whether
their sides differ by one constant factor there.
"""

from collections.abc import Sequence

from sympy import And, Basic, Eq, Float, Interval, MatrixBase, N, Rational, Symbol, Tuple, nan, oo, simplify, zoo
from sympy import FiniteSet as PlainSet
from sympy.core.function import AppliedUndef
from sympy.core.relational import GreaterThan, LessThan, Relational, StrictGreaterThan, StrictLessThan

DIGITS, AGREE = 200, Rational(1, 10**150)
POINTS = ((7, 11), (23, 5), (41, 17), (13, 29), (3, 37), (59, 19))  # (numerator seed, denominator)
WANTED_POINTS = 3


def strictly_equal(answer: Basic | MatrixBase, gold: Basic | MatrixBase) -> bool:
    """Whether two parsed answers, equal for math-verify, are equal on a second look. Kinds that have no stricter
    comparison here (unions, unlike kinds such as an inequality and its interval) are taken at math-verify's word."""
    if _is_relation(answer) and not _is_relation(gold):
        return strictly_equal(_last_side(answer), gold) if _is_equation(answer) else True
    if _is_relation(gold) and not _is_relation(answer):
        return strictly_equal(answer, _last_side(gold)) if _is_equation(gold) else True
    if _is_relation(answer):
        return _same_relations(answer, gold)
    if isinstance(answer, MatrixBase) and isinstance(gold, MatrixBase):
        return answer.shape == gold.shape and _pairwise(answer.flat(), gold.flat())
    if isinstance(answer, Interval) and isinstance(gold, Interval):
        same_ends = (answer.left_open, answer.right_open) == (gold.left_open, gold.right_open)
        return same_ends and _pairwise(answer.args[:2], gold.args[:2])
    if isinstance(answer, (PlainSet, Tuple)) and isinstance(gold, (PlainSet, Tuple)):
        return len(answer.args) == len(gold.args) and all(_has_partner(g, answer.args) for g in gold.args)
    if getattr(answer, "is_Matrix", False) or hasattr(answer, "is_subset") or hasattr(gold, "is_subset"):
        return True
    return _same_expression(answer, gold)


def _is_relation(expression: Basic | MatrixBase) -> bool:
    return isinstance(expression, (Relational, And)) or type(expression).__name__ == "And"


def _parts(relation: Basic) -> Sequence[Basic]:
    """The relations of a chain, or the one relation."""
    return [relation] if isinstance(relation, Relational) else list(relation.args)


def _is_equation(relation: Basic) -> bool:
    return all(isinstance(part, Eq) for part in _parts(relation))


def _last_side(relation: Basic) -> Basic:
    return _parts(relation)[-1].args[1]


def _pairwise(ours: Sequence[Basic], theirs: Sequence[Basic]) -> bool:
    return all(strictly_equal(a, g) for a, g in zip(ours, theirs, strict=True))


def _has_partner(item: Basic, others: Sequence[Basic]) -> bool:
    return any(strictly_equal(other, item) for other in others)


def _exact(expression: Basic) -> Basic:
    """Decimals as the rationals they spell, then evaluated."""
    return expression.xreplace({f: Rational(str(f)) for f in expression.atoms(Float)}).doit()


def _same_expression(answer: Basic, gold: Basic) -> bool:
    answer, gold = _exact(answer), _exact(gold)
    if answer == gold:
        return True
    if answer.is_Rational and gold.is_Rational:
        return False
    symbols = answer.free_symbols | gold.free_symbols
    if answer.has(AppliedUndef) or gold.has(AppliedUndef):
        return simplify(answer - gold) == 0
    if not symbols:
        return _close(answer, gold)
    values = _at_points([answer, gold], symbols)
    return bool(values) and all(_close(a, g) for a, g in values)


def _close(a: Basic, b: Basic) -> bool:
    """Relative agreement of two numbers; a difference that is tiny but not relatively so must be zero exactly."""
    left, right = N(a, DIGITS, maxn=4 * DIGITS), N(b, DIGITS, maxn=4 * DIGITS)
    gap, size = abs(left - right), max(abs(left), abs(right))
    if gap <= AGREE * size:
        return True
    return bool(gap < AGREE) and simplify(a - b) == 0


def _at_points(expressions: Sequence[Basic], symbols: set[Symbol]) -> list[list[Basic]]:
    """Values of the expressions at up to three points where all are finite numbers."""
    ordered, rows = sorted(symbols, key=str), []
    for seed, under in POINTS:
        point = {symbol: Rational(seed + 2 * i * under + i, under) for i, symbol in enumerate(ordered)}
        row = [N(e.subs(point), DIGITS, maxn=4 * DIGITS) for e in expressions]
        if all(value.is_number and not value.has(nan, oo, -oo, zoo) for value in row):
            rows.append(row)
        if len(rows) == WANTED_POINTS:
            break
    return rows


def _same_relations(answer: Basic, gold: Basic) -> bool:
    ours, theirs = _parts(answer), _parts(gold)
    if not all(isinstance(part, Relational) for part in [*ours, *theirs]):
        return True
    if len(ours) != len(theirs):
        return False
    return all(any(_same_relation(a, g) for a in ours) for g in theirs)


def _same_relation(answer: Relational, gold: Relational) -> bool:
    (kind_a, side_a), (kind_g, side_g) = _one_sided(answer), _one_sided(gold)
    if kind_a != kind_g:
        return False
    symbols = side_a.free_symbols | side_g.free_symbols
    rows = _at_points([side_a, side_g], symbols) if symbols else []
    ratios = [a / g for a, g in rows if a != 0 and g != 0]
    if not ratios or len(ratios) < len(rows):
        return _same_expression(side_a, side_g)
    same_sign = isinstance(gold, Eq) or bool(ratios[0] > 0)
    return same_sign and all(_close(ratio, ratios[0]) for ratio in ratios)


def _one_sided(relation: Relational) -> tuple[str, Basic]:
    """(kind, left - right), with < and <= turned round into > and >=."""
    left, right = (_exact(side) for side in relation.args)
    if isinstance(relation, (LessThan, StrictLessThan)):
        left, right = right, left
    strict = isinstance(relation, (StrictLessThan, StrictGreaterThan))
    wide = isinstance(relation, (LessThan, GreaterThan))
    return (">" if strict else ">=" if wide else type(relation).__name__), left - right
