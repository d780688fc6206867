"""Segments with other numbers, names, phrases and answers, made out of real ones: what a small judge is taught with.

Whether a segment states the reference answer does not depend on which numbers a problem is about. So a segment of a
chain sum also serves with other numbers in it, with letters or lists in their place, with meaningless lines between
its own, with the answer said in other words or only guessed, and beside an answer that is nearly the one it states.
Nothing here says yes or no: a labeller reads the result like any segment.
"""

import random
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.judge.base import JudgeItem

NUMBER = re.compile(r"(?<![\d.])-?\d+")
STATEMENT = re.compile(r"So the answer is ([^\n]*?)\.(?=\n|$)")
SIGNS = string.ascii_letters + string.digits
STATED = (
    "So the answer is {}.",
    "So the answer is {}",
    "The answer is {}.",
    "the answer is {}.",
    "Therefore the answer is {}.",
    "So the answer is \\boxed{{{}}}.",
    "Answer: {}",
)
NOT_STATED = (
    "Maybe the answer is {}.",
    "perhaps the answer is {}.",
    "Is the answer {}?",
    "Could the answer be {}?",
    "If the answer is {}, check again.",
    "the answer is not {}.",
    "maybe it is {}",
    "So {} is it right?",
    "So it is {}.",
    "Let me check {} again.",
    "the start is {}.",
    "So the answer is",
    "{}",
)


@dataclass(frozen=True)
class Material:
    """One trace to alter: its problem, its reference answer, the texts of its segments."""

    problem: str
    gold: str
    texts: Sequence[str]


def alter(material: Material, rng: random.Random, words: Sequence[str]) -> JudgeItem:
    """One altered segment of a trace, beside a reference answer that it may or may not state. `words` are the pieces
    that meaningless lines are made of: the judge's own vocabulary, so that none of it is met for the first time later.
    """
    problem, gold, text = material.problem, material.gold, rng.choice(material.texts)
    if rng.random() < 0.1:
        text = "\n".join([text, rng.choice(material.texts)])
    stated = STATEMENT.search(text)
    if stated and rng.random() < 0.6:
        gold = stated[1] or gold
    if rng.random() < 0.6:
        problem, gold, text = renamed(problem, gold, text, rng)
    if rng.random() < 0.35:
        text = _said_otherwise(text, rng)
    gold = _another_answer(gold, text, rng)
    if rng.random() < 0.2:
        text = _longer(text, rng)
    if rng.random() < 0.4:
        text = _with_noise(text, rng, words)
    if rng.random() < 0.15:  # breaks off in the middle of something
        text += rng.choice(("\n", " ", "")) + _noise(rng, words)[: rng.randint(1, 12)]
    if rng.random() < 0.2:
        problem = _another_problem(problem, gold, rng, words)
    return JudgeItem(problem, gold, text.strip())


def shorten(item: JudgeItem, rng: random.Random) -> JudgeItem:
    """The same with little around the answer: for the first lessons, in which most tokens should be to the point."""
    lines = item.segment_text.split("\n")
    about = [i for i, line in enumerate(lines) if "answer" in line.lower()]
    at = rng.choice(about) if about else rng.randrange(len(lines))
    kept = lines[max(0, at - (rng.random() < 0.3)) : at + 1]
    return JudgeItem(item.problem[: rng.randint(2, 12)], item.gold, "\n".join(kept).strip())


def renamed(problem: str, gold: str, text: str, rng: random.Random) -> tuple[str, str, str]:
    """Every number replaced, the same one by the same everywhere: by numbers of other sizes, by signs, by lists (the
    answers only), or by some of each."""
    kind = rng.choice(("numbers", "signs", "lists", "mixed"))
    few = rng.sample(SIGNS, 5)
    makers: dict[str, Callable[[], str]] = {
        "numbers": lambda: number(rng),
        "signs": lambda: rng.choice(SIGNS),
        "lists": lambda: ", ".join(rng.sample(few, 2)) if rng.random() < 0.8 else listing(rng),
        "mixed": lambda: rng.choice((number, listing, lambda r: r.choice(SIGNS)))(rng),
    }
    table: dict[str, str] = {}

    def new(match: re.Match[str]) -> str:
        if match[0] not in table:
            drawn = [makers[kind]() for _ in range(20)]
            table[match[0]] = next((name for name in drawn if name not in table.values()), drawn[0])
        return table[match[0]]

    if kind == "lists":
        text = STATEMENT.sub(lambda match: f"So the answer is {NUMBER.sub(new, match[1])}.", text)
        return problem, NUMBER.sub(new, gold), text
    return NUMBER.sub(new, problem), NUMBER.sub(new, gold), NUMBER.sub(new, text)


def number(rng: random.Random) -> str:
    """A whole number of one to four digits, one in four negative."""
    return str(rng.choice((1, 1, 1, -1)) * rng.randrange(10 ** rng.choice((1, 1, 2, 2, 3, 4))))


def listing(rng: random.Random) -> str:
    """Two or three signs or numbers between commas, some of them alike."""
    pool = rng.sample(SIGNS, 4) if rng.random() < 0.7 else [number(rng) for _ in range(4)]
    return ", ".join(rng.choice(pool) for _ in range(rng.choice((2, 2, 2, 3))))


def near(gold: str, rng: random.Random) -> str:
    """An answer that is easily taken for `gold`, or is the same in another order."""
    parts = gold.split(", ")
    if len(parts) > 1:
        if rng.random() < 0.25:
            return ", ".join(rng.sample(parts, len(parts)))
        parts[rng.randrange(len(parts))] = rng.choice(SIGNS) if rng.random() < 0.7 else rng.choice(parts)
        return ", ".join(parts)
    if not gold.lstrip("-").isdigit():
        return rng.choice(SIGNS)
    sign, digits = gold[: gold.startswith("-")], list(gold.lstrip("-"))
    at = rng.randrange(len(digits))
    change = rng.randrange(5)
    if change == 0:
        return str(-int(gold)) if rng.random() < 0.5 else str(int(gold) + rng.choice((-2, -1, 1, 2)))
    if change == 1 and len(digits) > 1:
        del digits[at]
    elif change == 2 and len(digits) > 1:
        rng.shuffle(digits)
    elif change == 3:
        digits.insert(at, rng.choice(string.digits))
    else:
        digits[at] = rng.choice(string.digits)
    return sign + "".join(digits)


def _said_otherwise(text: str, rng: random.Random) -> str:
    found = list(STATEMENT.finditer(text))
    if not found:
        return text
    last = found[-1]
    forms = NOT_STATED if rng.random() < 0.5 else STATED
    return text[: last.start()] + rng.choice(forms).format(last[1]) + text[last.end() :]


def _another_answer(gold: str, text: str, rng: random.Random) -> str:
    """Mostly the same; else one near it, one that stands somewhere in the segment, or any."""
    chance, inside = rng.random(), NUMBER.findall(text)
    if chance < 0.25:
        return near(gold, rng)
    if chance < 0.4 and inside:
        return rng.choice(inside)
    return rng.choice((number, listing))(rng) if chance > 0.95 else gold


def _longer(text: str, rng: random.Random) -> str:
    """A block of up to twenty of its own working lines put in somewhere, so that a statement may stand far from the
    end, among many numbers."""
    lines = text.split("\n")
    working = [line for line in lines if "answer" not in line.lower()] or lines
    at = rng.randint(0, len(lines))
    return "\n".join([*lines[:at], *rng.choices(working, k=rng.randint(1, 20)), *lines[at:]])


def _with_noise(text: str, rng: random.Random, words: Sequence[str]) -> str:
    """One to four meaningless lines among its own, more often before its last one than after."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 4)):
        lines.insert(rng.randint(0, len(lines) if rng.random() < 0.3 else len(lines) - 1), _noise(rng, words))
    return "\n".join(lines)


def _another_problem(problem: str, gold: str, rng: random.Random, words: Sequence[str]) -> str:
    """Another question, one that holds the answer, or one that states it: a segment is judged for what it says."""
    line = _noise(rng, words)
    return rng.choice((f"{line}?", f"{problem} {line}", f"{problem} The answer is {gold}.", f"{line} {gold}?"))


def _noise(rng: random.Random, words: Sequence[str]) -> str:
    return "".join(rng.choice(words) for _ in range(rng.randint(2, 10))).replace("\n", "")
