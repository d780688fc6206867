"""A lever that would not be in effect is refused in one sentence; the others are told."""

import pytest

from pipeline.config import UserError
from serve.inference.request import Abilities, abilities, ask_of, in_effect, messages_of
from serve.speculation.settings import SCHEDULER

ALL = Abilities(drafts=True, method="ngram", k_max=4, caps=True, marks=True, priorities=True)
PLAIN = Abilities(drafts=False, marks=False, priorities=False)
ALIKE = Abilities(drafts=True, method="ngram", k_max=4, marks=True, priorities=True)
UNKNOWN = Abilities()


def levers(can, **asked):
    return in_effect(ask_of("2 + 2", asked), can)


def test_what_is_in_effect():
    assert levers(ALL, use_speculative=True, thinking_budget=8, priority=-1) == {
        "speculative": True, "method": "ngram", "max_draft_tokens": 4, "thinking_budget": 8, "priority": -1,
    }  # fmt: skip
    off = {"speculative": False, "method": None, "max_draft_tokens": 0, "thinking_budget": None, "priority": 0}
    assert levers(ALL, use_speculative=False) == off == levers(PLAIN) == levers(PLAIN, use_speculative=False)
    assert levers(ALL, max_draft_tokens=0) == off and levers(ALL, max_draft_tokens=2)["max_draft_tokens"] == 2
    assert levers(ALIKE)["speculative"] and levers(ALIKE, use_speculative=True)["max_draft_tokens"] == 4
    assert levers(UNKNOWN)["speculative"] is None


@pytest.mark.parametrize(
    ("can", "asked", "part"),
    [
        (PLAIN, {"use_speculative": True}, "use_speculative=True, but this engine drafts nothing: set"),
        (PLAIN, {"max_draft_tokens": 2}, "max_draft_tokens=2, but this engine drafts nothing"),
        (ALIKE, {"use_speculative": False}, "use_speculative=False, but this engine drafts alike for all requests"),
        (ALIKE, {"max_draft_tokens": 2}, "max_draft_tokens=2, but this engine drafts alike"),
        (ALL, {"max_draft_tokens": 5}, "max_draft_tokens=5 caps nothing: this engine drafts at most 4"),
        (ALL, {"max_draft_tokens": -1}, "max_draft_tokens is -1; give a whole number of at least 0"),
        (ALL, {"max_draft_tokens": True}, "max_draft_tokens is True"),
        (ALL, {"use_speculative": False, "max_draft_tokens": 2}, "contradict each other"),
        (ALL, {"use_speculative": True, "max_draft_tokens": 0}, "contradict each other"),
        (PLAIN, {"thinking_budget": 8}, "does not know where thinking ends: set reasoning.parser"),
        (PLAIN, {"priority": 1}, "priority=1, but this engine serves first come, first served"),
        (UNKNOWN, {"use_speculative": True}, "use_speculative was asked for, but the endpoint does not tell"),
        (UNKNOWN, {"max_draft_tokens": 1}, "max_draft_tokens was asked for, but the endpoint does not tell"),
        (UNKNOWN, {"thinking_budget": 1}, "the endpoint does not tell"),
        (UNKNOWN, {"priority": 1}, "the endpoint does not tell"),
        (ALL, {"max_tokens": 0}, "max_tokens is 0; give a whole number of at least 1"),
        (ALL, {"num_speculative_tokens": 3}, "'num_speculative_tokens' is no lever of one inference; use"),
        (ALL, {"thinking_budgt": 3}, "did you mean 'thinking_budget'"),
    ],
)  # fmt: skip
def test_what_would_be_ignored_is_refused(can, asked, part):
    with pytest.raises(UserError) as refused:
        levers(can, **asked)
    assert part in str(refused.value) and "\n" not in str(refused.value)


def test_abilities_by_what_the_engine_tells():
    told = {
        "speculative_config.method": "ngram",
        "speculative_config.num_speculative_tokens": 4,
        "scheduler_cls": SCHEDULER,
        "reasoning_parser": "deepseek_r1",
        "scheduling_policy": "priority",
    }
    assert abilities(told) == ALL
    assert abilities({"reasoning_parser": "", "scheduling_policy": "fcfs"}) == PLAIN
    assert abilities({"reasoning_config.reasoning_end_str": "</t>"}).marks


def test_prompts():
    assert messages_of("hi") == ({"role": "user", "content": "hi"},)
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert messages_of(talk) == tuple(talk)
    for wrong in ([], [{"role": "user"}], ["hi"]):
        with pytest.raises(UserError, match="a text or a list of messages"):
            messages_of(wrong)
