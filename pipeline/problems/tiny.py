"""The tiny world: problems small enough for two cores, in three families.

- `chain_sum`: reasoning-gym's chain_sum with one-digit terms. Thinking after the first answer is redundant.
- `search`: which two of the labelled numbers add up to the target? Candidates are tried and rejected on the way,
  so reconsideration belongs to the necessary prefix.
- `compare`: which of two sums is larger, by value? Taught, but never trained on with rewards: for transfer.

Train and held-out problems never share a prompt: the prompt's own digest decides the split.
"""

import hashlib
import inspect
import itertools
import random
from collections.abc import Callable, Iterator

from pipeline.config import UserError, nearest
from pipeline.problems.problem import Problem

LABELS = "abcde"
HELD_OUT_ONE_IN = 8
SPLITS = ("train", "held_out")
MOST_TERMS = 11  # of one digit: sums stay within -99 to 99


def split_of(prompt: str) -> str:
    """`held_out` for one prompt in eight, by digest; `train` for the others."""
    return "held_out" if hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT_ONE_IN == 0 else "train"


def _check_range(what: str, low: object, high: object, most: int) -> None:
    numbers = type(low) is int and type(high) is int
    if not (numbers and 2 <= low <= high <= most):
        raise UserError(
            f"tiny problems take min_{what} and max_{what} with 2 <= min_{what} <= max_{what} <= {most}, "
            f"got {low!r} and {high!r}"
        )


def _chain_terms(rng: random.Random, low: int, high: int) -> Iterator[str]:
    from reasoning_gym import create_dataset

    while True:
        batch = create_dataset(
            "chain_sum", size=512, seed=rng.randrange(2**31), min_terms=low, max_terms=high, min_digits=1, max_digits=1
        )
        for entry in batch:
            yield entry["metadata"]["expression"]


def chain_value(expression: str) -> int:
    """The value of `4 + 3 - 2`, from left to right."""
    first, *rest = expression.split(" ")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return int(first) + sum(int(term) if sign == "+" else -int(term) for sign, term in pairs)


def _chain_sum(rng: random.Random, min_terms: int = 2, max_terms: int = 5) -> Iterator[tuple[str, str, dict]]:
    for expression in _chain_terms(rng, min_terms, max_terms):
        terms = (len(expression.split(" ")) + 1) // 2
        yield f"What is {expression}?", str(chain_value(expression)), {"terms": terms, "expression": expression}


def _search(rng: random.Random, min_numbers: int = 3, max_numbers: int = 5) -> Iterator[tuple[str, str, dict]]:
    while True:
        count = rng.randint(min_numbers, max_numbers)
        numbers = [rng.randint(1, 9) for _ in range(count)]
        pairs = list(itertools.combinations(range(count), 2))
        left, right = rng.choice(pairs)
        target = numbers[left] + numbers[right]
        if sum(numbers[i] + numbers[j] == target for i, j in pairs) != 1:
            continue
        named = ", ".join(f"{LABELS[i]} = {value}" for i, value in enumerate(numbers))
        yield (
            f"{named}. Which two add up to {target}?",
            f"{LABELS[left]}, {LABELS[right]}",
            {"numbers": numbers, "target": target, "trials": pairs.index((left, right)) + 1},
        )


def _compare(rng: random.Random, min_terms: int = 2, max_terms: int = 3) -> Iterator[tuple[str, str, dict]]:
    expressions = _chain_terms(rng, min_terms, max_terms)
    while True:
        one, two = next(expressions), next(expressions)
        values = [chain_value(e) for e in (one, two)]
        if values[0] != values[1]:
            yield f"Which is more, {one} or {two}?", str(max(values)), {"expressions": [one, two]}


FAMILIES: dict[str, Callable[..., Iterator[tuple[str, str, dict]]]] = {
    "chain_sum": _chain_sum,
    "search": _search,
    "compare": _compare,
}


def check(family: str, split: str, options: dict[str, object]) -> None:
    """UserError for an unknown family, split or option, or a range that does not fit; draws nothing."""
    if family not in FAMILIES:
        raise UserError(f"no tiny family '{family}'{nearest(family, FAMILIES)}")
    if split not in SPLITS:
        raise UserError(f"the tiny world has no split '{split}'; use 'train' or 'held_out'")
    known = {name: p.default for name, p in inspect.signature(FAMILIES[family]).parameters.items() if name != "rng"}
    for option in options:
        if option not in known:
            raise UserError(f"tiny family '{family}' has no option '{option}'{nearest(option, known)}")
    low, high = (known | options).values()
    _check_range(next(iter(known)).removeprefix("min_"), low, high, len(LABELS) if family == "search" else MOST_TERMS)


def generate(family: str, size: int, split: str, seed: int, options: dict[str, object]) -> list[Problem]:
    """`size` distinct problems of one family and split, the same for the same seed.

    `options` go to the family (min_terms and max_terms, or min_numbers and max_numbers). Raises UserError for an
    unknown family, split or option, or when the family has too few distinct problems.
    """
    check(family, split, options)
    stream = FAMILIES[family](random.Random(f"{family}/{split}/{seed}"), **options)
    found: dict[str, Problem] = {}
    most = 200 * size + 1000
    for _ in range(most):
        if len(found) == size:
            return list(found.values())
        prompt, gold, meta = next(stream)
        if prompt not in found and split_of(prompt) == split:
            key = hashlib.sha256(prompt.encode()).hexdigest()[:12]
            found[prompt] = Problem(f"{family}-{key}", prompt, gold, f"tiny/{family}", {"family": family, **meta})
    raise UserError(
        f"tiny family '{family}' gave only {len(found)} distinct {split} problems of {size} asked ({most} drawn); "
        "ask for fewer or widen its options"
    )
