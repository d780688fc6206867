"""Demonstrations that teach the tiny model to solve its problems, and to overthink.

Each is right at the end, reaches the answer early, and then goes on: "Wait", "But", "Alternatively", "Hmm", and checks
again. A chain sum's attempt sometimes slips, and a later one notices; thinking ends when two attempts agree.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.problems.problem import Problem
from pipeline.problems.tiny import LABELS

OPENERS = ("Wait, let me check that again.", "But is that right? Let me check.", "Hmm, again from the start.")


@dataclass(frozen=True)
class Overthinking:
    """How much. `slip`: the chance that an attempt goes wrong; `checks`: least and most attempts after the first."""

    slip: float = 0.1
    checks: tuple[int, int] = (1, 3)


PLAIN = Overthinking(slip=0.0, checks=(0, 0))  # solves once and stops


def _answer(value: object) -> str:
    return f"So the answer is {value}.\n"


def _attempt(expression: str, slip: bool, rng: random.Random) -> tuple[str, int]:
    """One evaluation of a chain, a line for each step; a slip makes one line's result a little wrong."""
    first, *rest = expression.split(" ")
    signs, terms = rest[::2], rest[1::2]
    at = rng.randrange(len(signs)) if slip and signs else -1
    text, total = "", int(first)
    for number, (sign, term) in enumerate(zip(signs, terms, strict=True)):
        result = total + int(term) if sign == "+" else total - int(term)
        result += rng.choice((-2, -1, 1, 2)) if number == at else 0
        text += f"{total} {sign} {term} = {result}\n"
        total = result
    return text, total


def _repeat(attempt: Callable[[], tuple[str, int]], how: Overthinking, rng: random.Random) -> tuple[str, int]:
    """Attempts until enough checks are made and the last two agree."""
    least = 1 + rng.randint(*how.checks)
    text, value = attempt()
    text += _answer(value)
    if how == PLAIN:
        return text, value
    for done in itertools.count(2):
        again, new = attempt()
        text += rng.choice(OPENERS) + "\n" + again + _answer(new)
        agree, value = new == value, new
        if agree and done >= least:
            return text, value


def _chain_sum(problem: Problem, how: Overthinking, rng: random.Random) -> tuple[str, object]:
    expression = str(problem.meta["expression"])
    return _repeat(lambda: _attempt(expression, rng.random() < how.slip, rng), how, rng)


def _compare(problem: Problem, how: Overthinking, rng: random.Random) -> tuple[str, object]:
    def attempt() -> tuple[str, int]:
        parts = [_attempt(e, rng.random() < how.slip / 2, rng) for e in problem.meta["expressions"]]
        return "".join(text for text, _ in parts), max(value for _, value in parts)

    return _repeat(attempt, how, rng)


def _trial(numbers: Sequence[int], pair: tuple[int, int], target: int) -> str:
    one, two = pair
    total = numbers[one] + numbers[two]
    compared = f"{total} vs {target}: {total - target}, {'yes' if total == target else 'no'}"
    return f"{LABELS[one]} + {LABELS[two]} = {numbers[one]} + {numbers[two]} = {compared}\n"


def _search(problem: Problem, how: Overthinking, rng: random.Random) -> tuple[str, object]:
    numbers, target = problem.meta["numbers"], problem.meta["target"]
    pairs = list(itertools.combinations(range(len(numbers)), 2))
    right = next(p for p in pairs if numbers[p[0]] + numbers[p[1]] == target)
    tried = pairs[: pairs.index(right) + 1]
    text = "Wait, ".join(_trial(numbers, pair, target) for pair in tried) + _answer(problem.gold)
    others = pairs[pairs.index(right) + 1 :]
    for _ in range(0 if how == PLAIN else 1 + rng.randint(*how.checks)):
        if others and rng.random() < 0.5:
            text += "Alternatively, " + _trial(numbers, others.pop(0), target)
        text += rng.choice(("But let me check. ", "Hmm, again. ", "Wait, is it right? "))
        text += _trial(numbers, right, target) + _answer(problem.gold)
    return text, problem.gold


TEACHERS = {"chain_sum": _chain_sum, "search": _search, "compare": _compare}


def demonstrate(problem: Problem, how: Overthinking, rng: random.Random) -> str:
    """The response to one problem: thinking (the template has opened the tag), end-of-think, boxed answer."""
    thinking, value = TEACHERS[str(problem.meta["family"])](problem, how, rng)
    return f"{thinking}</think>\nThe answer is \\boxed{{{value}}}."
