"""Speculation must not change what is written: greedy tokens are the same, sampled ones come from the same law."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.config import UserError

MIN_EXPECTED = 5.0  # expected count of a cell below which the chi-square law is not a good one


@dataclass(frozen=True)
class Difference:
    """The first token in which two runs differ; None where a reply had ended."""

    request: str
    position: int
    plain: int | None
    speculative: int | None


def first_difference(plain: Mapping[str, Sequence[int]], speculative: Mapping[str, Sequence[int]]) -> Difference | None:
    """Compares greedy replies (token ids by request) with and without speculation; None when all are the same.

    UserError when the two runs do not hold the same requests, or hold none: nothing would have been compared.
    """
    if set(plain) != set(speculative) or not plain:
        raise UserError("both runs must hold the same requests, and at least one")
    for request in sorted(plain):
        a, b = list(plain[request]), list(speculative[request])
        for position in range(max(len(a), len(b))):
            left = a[position] if position < len(a) else None
            right = b[position] if position < len(b) else None
            if left != right:
                return Difference(request, position, left, right)
    return None


@dataclass(frozen=True)
class ChiSquare:
    """A chi-square test: `p` is None (the answer is unknown) when too few cells are filled to test anything."""

    statistic: float
    freedom: int
    p: float | None

    def verdict(self, level: float = 1e-3) -> str:
        """`same`, `different`, or `unknown`."""
        if self.p is None:
            return "unknown"
        return "different" if self.p < level else "same"


def compare_samples(plain: Sequence[Hashable], speculative: Sequence[Hashable]) -> ChiSquare:
    """Two-sample chi-square test of homogeneity: do both come from one law?

    Values too rare to expect `MIN_EXPECTED` of in either sample are put together in one cell; when that cell is still
    too rare it is joined to the rarest other one.
    """
    a, b = Counter(plain), Counter(speculative)
    total_a, total_b = len(plain), len(speculative)
    if not total_a or not total_b:
        raise UserError("a comparison of samples needs at least one value on each side")
    share = min(total_a, total_b) / (total_a + total_b)
    cells = _joined([(a[v], b[v]) for v in sorted(a.keys() | b.keys(), key=repr)], lambda c: sum(c) * share)
    statistic = 0.0
    for seen_a, seen_b in cells:
        pooled = (seen_a + seen_b) / (total_a + total_b)
        statistic += (seen_a - total_a * pooled) ** 2 / (total_a * pooled)
        statistic += (seen_b - total_b * pooled) ** 2 / (total_b * pooled)
    return _result(statistic, len(cells) - 1)


def compare_to_law(sample: Sequence[Hashable], law: Mapping[Hashable, float]) -> ChiSquare:
    """Chi-square test of goodness of fit of a sample to known probabilities (UserError when they do not sum to 1).

    A value that the law excludes is `different` for certain (p = 0).
    """
    if not sample or abs(sum(law.values()) - 1) > 1e-6:
        raise UserError("the sample must not be empty and the probabilities must sum to 1")
    seen, total = Counter(sample), len(sample)
    if any(law.get(value, 0.0) <= 0 for value in seen):
        return ChiSquare(math.inf, 0, 0.0)
    cells = _joined([(seen[value], total * chance) for value, chance in law.items() if chance > 0], lambda c: c[1])
    return _result(sum((got - want) ** 2 / want for got, want in cells), len(cells) - 1)


def _joined(cells: list, expected) -> list:  # noqa: ANN001 - a function of a cell
    """Cells whose expected count is at least MIN_EXPECTED, the rest joined into one."""
    cells = sorted(cells, key=expected)
    while len(cells) > 1 and expected(cells[0]) < MIN_EXPECTED:
        first, second, *rest = cells
        cells = sorted([(first[0] + second[0], first[1] + second[1]), *rest], key=expected)
    return cells


def _result(statistic: float, freedom: int) -> ChiSquare:
    return ChiSquare(statistic, freedom, upper_tail(statistic, freedom) if freedom > 0 else None)


def upper_tail(statistic: float, freedom: int) -> float:
    """P(chi-square with `freedom` degrees > statistic): the regularised upper incomplete gamma function.

    By its power series left of the mean, and by its continued fraction (Lentz's method) right of it.
    """
    a, x = freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1 - scale * total)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for i in range(1, 1000):
        step = -i * (i - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return scale * fraction
