"""The tiny world's problems: right answers, disjoint splits, the same ones for the same seed."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Source, UserError
from pipeline.problems import load_problems, overlap
from pipeline.problems.tiny import FAMILIES, LABELS, chain_value, generate, split_of

FAMILY = pytest.mark.parametrize("family", FAMILIES)


def brute_force(prompt):
    """The answer, from nothing but the text of the question."""
    if match := re.fullmatch(r"What is (.+)\?", prompt):
        return str(eval(match[1]))
    if match := re.fullmatch(r"Which is more, (.+) or (.+)\?", prompt):
        assert eval(match[1]) != eval(match[2])
        return str(max(eval(match[1]), eval(match[2])))
    match = re.fullmatch(r"(.+)\. Which two add up to (\d+)\?", prompt)
    numbers = dict(pair.split(" = ") for pair in match[1].split(", "))
    assert list(numbers) == list(LABELS[: len(numbers)])
    pairs = itertools.combinations(numbers, 2)
    (only,) = [pair for pair in pairs if sum(int(numbers[label]) for label in pair) == int(match[2])]
    return ", ".join(only)


@FAMILY
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_gold_is_right(family, split):
    problems = generate(family, 150, split, 7, {})
    assert [problem.gold for problem in problems] == [brute_force(problem.prompt) for problem in problems]
    assert {problem.source for problem in problems} == {f"tiny/{family}"}
    assert all(problem.meta["family"] == family and problem.id.startswith(family) for problem in problems)


@FAMILY
def test_splits_share_no_prompt(family):
    train = [p for seed in (0, 1) for p in generate(family, 300, "train", seed, {})]
    held_out = [p for seed in (0, 1) for p in generate(family, 100, "held_out", seed, {})]
    assert not overlap(train, held_out) and not {p.id for p in train} & {p.id for p in held_out}
    assert {split_of(p.prompt) for p in train} == {"train"} and {split_of(p.prompt) for p in held_out} == {"held_out"}


@FAMILY
def test_same_seed_same_problems(family):
    one = generate(family, 60, "train", 3, {})
    assert one == generate(family, 60, "train", 3, {}) and one != generate(family, 60, "train", 4, {})
    assert generate(family, 20, "train", 3, {}) == one[:20]
    assert len({p.prompt for p in one}) == len({p.id for p in one}) == 60


def test_one_prompt_in_eight_is_held_out():
    prompts = [f"What is {a} + {b}?" for a in range(60) for b in range(60)]
    assert 0.10 < sum(split_of(prompt) == "held_out" for prompt in prompts) / len(prompts) < 0.15


def test_value_of_a_chain():
    assert [chain_value(text) for text in ("4 + 3 - 2", "1 - 9 + 2", "8")] == [5, -6, 8]


@given(st.integers(-9, 9), st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 9)), max_size=10))
def test_value_of_any_chain(first, rest):
    expression = str(first) + "".join(f" {sign} {term}" for sign, term in rest)
    assert chain_value(expression) == eval(expression)


def test_options_reach_the_family():
    chains = generate("chain_sum", 40, "train", 0, {"min_terms": 3, "max_terms": 4})
    assert {p.meta["terms"] for p in chains} == {3, 4}
    assert {len(p.meta["expression"].split(" ")) for p in chains} == {5, 7}
    searches = generate("search", 40, "train", 0, {"min_numbers": 4, "max_numbers": 4})
    assert {len(p.meta["numbers"]) for p in searches} == {4}
    assert len({p.meta["trials"] for p in searches}) > 3


@pytest.mark.parametrize(
    "family,split,options,said",
    [
        ("chain_sums", "train", {}, "did you mean 'chain_sum'"),
        ("search", "test", {}, "no split 'test'; use 'train' or 'held_out'"),
        ("search", "train", {"max_terms": 3}, "'search' has no option 'max_terms'"),
        ("search", "train", {"min_numbers": 1}, "2 <= min_numbers <= max_numbers <= 5, got 1 and 5"),
        ("search", "train", {"max_numbers": 9}, "max_numbers <= 5"),
        ("chain_sum", "train", {"min_terms": 5, "max_terms": 4}, "got 5 and 4"),
        ("chain_sum", "train", {"max_terms": 12}, "max_terms <= 11"),
        ("compare", "train", {"max_terms": "four"}, "got 2 and 'four'"),
        ("compare", "train", {"min_terms": True}, "got True and 3"),
        ("search", "train", {"min_numbers": 2, "max_numbers": 2}, "gave only .* distinct train problems of 200 asked"),
    ],
)
def test_mistakes(family, split, options, said):
    with pytest.raises(UserError, match=said) as caught:
        generate(family, 200, split, 0, options)
    assert "\n" not in str(caught.value)


def test_through_the_config():
    sources = [Source(size=5), Source(name="search", size=5, split="held_out", options={"max_numbers": 3})]
    problems = load_problems(sources, 1)
    assert [p.source for p in problems] == ["tiny/chain_sum"] * 5 + ["tiny/search"] * 5
    assert [p.gold for p in problems] == [brute_force(p.prompt) for p in problems]
