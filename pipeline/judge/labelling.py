"""Who says what is right when a judge is taught: the exact judge, or a large model behind an endpoint."""

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.config import UserError
from pipeline.config.schema_teaching import JudgeTraining
from pipeline.judge.base import JudgeItem
from pipeline.judge.exact import ExactJudge
from pipeline.judge.prompt import INSTRUCTION, NO, YES
from pipeline.judge.watch import FailureWatch

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

BATCH = 256
AT_ONCE, TIMEOUT_S, TOP = 16, 120.0, 20
LEAST_MASS = 0.5  # of the next token's probability that yes and no must hold together
LEAST_LEAD = 0.8  # of that, what the likelier of the two must hold: an undecided label teaches nothing


@dataclass(frozen=True)
class Labelled:
    """Questions with their labels, and how many got none."""

    items: list[JudgeItem]
    yes: list[bool]
    failed: int


class Labeller(Protocol):
    """Labels questions; None where it could not."""

    def labels(self, items: Sequence[JudgeItem]) -> list[bool | None]:
        """One label an item."""
        ...


class ExactLabeller:
    """The judge by rule; None where the grader fails."""

    def labels(self, items: Sequence[JudgeItem]) -> list[bool | None]:
        """True or False, None where answers could not be compared."""
        return [None if math.isnan(p) else p == 1.0 for p in ExactJudge().probabilities(items)]


class EndpointLabeller:
    """Any OpenAI-compatible chat endpoint that gives log-probs. Its label is the likelier of yes and no as first token;
    None where the request fails or the model answers with something else."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model, self.last_error = url, model, ""

    def labels(self, items: Sequence[JudgeItem]) -> list[bool | None]:
        """One request an item, 16 at once."""
        return asyncio.run(self._all(items))

    async def _all(self, items: Sequence[JudgeItem]) -> list[bool | None]:
        from openai import AsyncOpenAI

        gate = asyncio.Semaphore(AT_ONCE)
        key = os.environ.get("OPENAI_API_KEY") or "none"
        async with AsyncOpenAI(base_url=self.url, api_key=key, timeout=TIMEOUT_S, max_retries=2) as client:
            return list(await asyncio.gather(*(self._one(client, gate, item) for item in items)))

    async def _one(self, client: "AsyncOpenAI", gate: asyncio.Semaphore, item: JudgeItem) -> bool | None:
        from openai import OpenAIError

        text = INSTRUCTION.format(problem=item.problem, gold=item.gold, segment=item.segment_text)
        async with gate:
            try:
                reply = await client.chat.completions.create(
                    model=self.model,
                    messages=[{"role": "user", "content": text}],
                    max_tokens=1,
                    temperature=0.0,
                    logprobs=True,
                    top_logprobs=TOP,
                )
            except OpenAIError as error:
                self.last_error = f"{type(error).__name__}: {error}"
                return None
        label = first_token_label(reply)
        if label is None:
            self.last_error = "the model's first token is neither yes nor no, or the server gives no log-probs"
        return label


def first_token_label(reply: "ChatCompletion") -> bool | None:
    """Whether yes (in any case, with or without a space before it) is likelier than no; None where neither is likely,
    both are about as likely, or log-probs are missing."""
    logprobs = reply.choices[0].logprobs if reply.choices else None
    if logprobs is None or not logprobs.content:
        return None
    mass = {YES: 0.0, NO: 0.0}
    for candidate in logprobs.content[0].top_logprobs:
        word = candidate.token.strip().lower()
        if word in mass:
            mass[word] += math.exp(candidate.logprob)
    total = sum(mass.values())
    decided = total >= LEAST_MASS and max(mass.values()) >= LEAST_LEAD * total
    return mass[YES] > mass[NO] if decided else None


def build_labeller(plan: JudgeTraining) -> Labeller:
    """The labeller that judge_training names."""
    if plan.labeller == "endpoint":
        return EndpointLabeller(str(plan.endpoint_url), str(plan.endpoint_model))
    return ExactLabeller()


def label(
    labeller: Labeller,
    items: Sequence[JudgeItem],
    max_failure_rate: float,
    on_done: Callable[[int], object] = lambda count: None,
) -> Labelled:
    """All items' labels; those that got none are left out and counted. JudgeFailure above `max_failure_rate` of the
    last 1000, UserError where nothing could be labelled."""
    watch, kept, yes, failed = FailureWatch(max_failure_rate, "labeller"), [], [], 0
    for start in range(0, len(items), BATCH):
        batch = items[start : start + BATCH]
        labels = labeller.labels(batch)
        watch.add([found is None for found in labels], getattr(labeller, "last_error", "") or "answers not comparable")
        for item, found in zip(batch, labels, strict=True):
            if found is None:
                failed += 1
            else:
                kept.append(item)
                yes.append(found)
        on_done(len(batch))
    if items and not kept:
        raise UserError(f"the labeller labelled none of {len(items)} segments; check judge_training.labeller")
    return Labelled(kept, yes, failed)
