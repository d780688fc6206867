"""What is asked of one inference, held against what the engine can do for one request. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from pipeline.config import UserError, nearest
from pipeline.config.option_catalogue import catalogue
from serve.speculation.settings import CAP, SCHEDULER

Message = dict[str, Any]
SEEDS = 2**63  # vLLM keeps seeds and priorities in so many
NOT_TOLD = (
    "the endpoint does not tell what its engine runs with (GET /admin/effective-config, with a key of the scope admin)"
)


@dataclass(frozen=True)
class Abilities:
    """What an engine can do for a request. None: nobody said.

    `drafts`: whether it drafts, by which method and at most how many tokens; `caps`: whether one request may have
    fewer; `marks`: whether it knows where thinking ends; `priorities`: whether the order of requests may be asked for.
    """

    drafts: bool | None = None
    method: str | None = None
    k_max: int | None = None
    caps: bool = False
    marks: bool | None = None
    priorities: bool | None = None


def abilities(effective: Mapping[str, Any]) -> Abilities:
    """What an engine can do for a request, by what `serve.engine_config.effective_engine` tells of it."""
    method = effective.get("speculative_config.method")
    return Abilities(
        drafts=method is not None,
        method=method,
        k_max=effective.get("speculative_config.num_speculative_tokens"),
        caps=effective.get("scheduler_cls") == SCHEDULER,
        marks=bool(effective.get("reasoning_parser") or effective.get("reasoning_config.reasoning_end_str")),
        priorities=effective.get("scheduling_policy") == "priority",
    )


class Levers(TypedDict, total=False):
    """What may be asked of one inference beside its prompt."""

    use_speculative: bool | None
    max_draft_tokens: int | None  # most tokens drafted at a step
    thinking_budget: int | None  # tokens after which thinking is ended
    priority: int  # lower runs earlier
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    timeout_s: float


@dataclass(frozen=True)
class Ask:
    """One request. What is None is left to the engine; lengths in tokens, `timeout_s` in seconds."""

    messages: tuple[Message, ...]
    use_speculative: bool | None = None
    max_draft_tokens: int | None = None
    thinking_budget: int | None = None
    priority: int = 0
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    timeout_s: float = 600.0

    @property
    def draft_cap(self) -> int | None:
        """Most tokens to draft at a step for this request; None leaves it to the engine."""
        return 0 if self.use_speculative is False else self.max_draft_tokens


def ask_of(prompt: str | Sequence[Message], asked: Levers) -> Ask:
    """UserError for a name that is no lever, and for what is no prompt."""
    for name in asked:
        if name not in Levers.__annotations__:
            option = catalogue().get(name)
            why = f"; {option.remedy()}" if option else nearest(name, Levers.__annotations__)
            raise UserError(f"'{name}' is no lever of one inference{why}")
    ask = Ask(messages_of(prompt), **asked)
    for sentence in (*_numbers(ask), *_kinds(ask)):
        raise UserError(sentence)
    return ask


def messages_of(prompt: str | Sequence[Message]) -> tuple[Message, ...]:
    """A text becomes one message of the user; messages are taken as they are. UserError for anything else."""
    if isinstance(prompt, str):
        prompt = ({"role": "user", "content": prompt},)
    if not isinstance(prompt, list | tuple) or not prompt or not all(map(_is_message, prompt)):
        raise UserError("a prompt is a text or a list of messages with role and content")
    try:
        json.dumps(prompt, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UserError(f"a prompt is plain text and JSON values, this one is not ({error})") from None
    return tuple(prompt)


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or "content" not in message:
        return False
    return isinstance(message.get("role"), str) and isinstance(message["content"], str | list | None)


def in_effect(ask: Ask, can: Abilities) -> dict[str, Any]:
    """The levers that will be in effect for `ask`, by name. UserError, in one sentence, for the first that was asked
    for and would not be."""
    for sentence in (*_numbers(ask), *_kinds(ask), *_speculation(ask, can), *_thinking(ask, can), *_priority(ask, can)):
        raise UserError(sentence)
    drafts = None if can.drafts is None else can.drafts and ask.draft_cap != 0
    return {
        "speculative": drafts,
        "method": can.method if drafts else None,
        "max_draft_tokens": can.k_max if drafts and ask.draft_cap is None else ask.draft_cap if drafts else 0,
        "thinking_budget": ask.thinking_budget,
        "priority": ask.priority,
    }


def _numbers(ask: Ask) -> list[str]:
    bounds = {
        "max_draft_tokens": (ask.max_draft_tokens, 0),
        "thinking_budget": (ask.thinking_budget, 0),
        "max_tokens": (ask.max_tokens, 1),
    }
    return [
        f"{name} is {value!r}; give a whole number of at least {least}"
        for name, (value, least) in bounds.items()
        if value is not None and (type(value) is not int or value < least)
    ]


def _kinds(ask: Ask) -> list[str]:
    """What is wrong with levers that are no counts."""
    wanted = {
        "use_speculative": (
            ask.use_speculative is None or isinstance(ask.use_speculative, bool),
            "True, False or None",
        ),
        "priority": (type(ask.priority) is int and abs(ask.priority) < SEEDS, "a whole number"),
        "temperature": (ask.temperature is None or _within(ask.temperature, 0, math.inf), "a number of at least 0"),
        "top_p": (ask.top_p is None or (_within(ask.top_p, 0, 1) and ask.top_p > 0), "a number above 0, at most 1"),
        "seed": (ask.seed is None or (type(ask.seed) is int and abs(ask.seed) < SEEDS), "a whole number of 64 bits"),
        "timeout_s": (_within(ask.timeout_s, 0, math.inf) and ask.timeout_s > 0, "seconds above 0"),
    }
    return [f"{name} is {getattr(ask, name)!r:.80}; give {what}" for name, (good, what) in wanted.items() if not good]


def _within(value: object, least: float, most: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and least <= value <= most


def _speculation(ask: Ask, can: Abilities) -> list[str]:
    wanted = ask.use_speculative is True or (ask.max_draft_tokens or 0) > 0
    cap, found = ask.draft_cap, []
    if ask.use_speculative is False and ask.max_draft_tokens:
        found.append("use_speculative=False and max_draft_tokens contradict each other; leave one out")
    if ask.use_speculative and ask.max_draft_tokens == 0:
        found.append("use_speculative=True and max_draft_tokens=0 contradict each other; leave one out")
    if can.drafts is None and (wanted or cap is not None):
        found.append(f"{'use_speculative' if ask.use_speculative is not None else CAP} was asked for, but {NOT_TOLD}")
    if wanted and can.drafts is False:
        asked = "use_speculative=True" if ask.use_speculative else f"{CAP}={ask.max_draft_tokens}"
        found.append(f"{asked}, but this engine drafts nothing: set speculation.method and speculation.k_max for it")
    if can.drafts and cap is not None and not can.caps:
        asked = "use_speculative=False" if ask.use_speculative is False else f"{CAP}={cap}"
        found.append(
            f"{asked}, but this engine drafts alike for all requests: set speculation.policy, whose scheduler reads "
            "a cap for each request"
        )
    if can.drafts and cap and can.k_max and cap > can.k_max:
        found.append(f"{CAP}={cap} caps nothing: this engine drafts at most {can.k_max} tokens a step")
    return found


def _thinking(ask: Ask, can: Abilities) -> list[str]:
    if ask.thinking_budget is None or can.marks:
        return []
    if can.marks is None:
        return [f"thinking_budget was asked for, but {NOT_TOLD}"]
    return [
        f"thinking_budget={ask.thinking_budget}, but this engine does not know where thinking ends: set "
        "reasoning.parser, or reasoning.start and reasoning.end"
    ]


def _priority(ask: Ask, can: Abilities) -> list[str]:
    if not ask.priority or can.priorities:
        return []
    if can.priorities is None:
        return [f"priority was asked for, but {NOT_TOLD}"]
    return [f"priority={ask.priority}, but this engine serves first come, first served: set admission.policy=priority"]
