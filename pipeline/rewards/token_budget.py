"""What the two forms of L1 share: a number of tokens in the prompt, drawn for each problem."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config import UserError
from pipeline.rewards.hooks import Steering
from pipeline.rewards.options import check_number, check_tokens, tokens_within
from pipeline.rewards.outcome import Outcome

PLACE = "{tokens}"


@dataclass(frozen=True)
class TokenBudget:
    """Base of `L1Exact` and `L1Max`: the user's turn ends with `note`, in which `{tokens}` is a whole number between
    `shortest` and `longest` (default: the longest response), the same for all samples of a problem in all epochs."""

    alpha: float = 3e-4
    shortest: int = 100
    longest: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, "a number above 0", lambda value: value > 0)
        check_tokens("longest", self.longest)
        check_tokens("shortest", 0 if self.shortest is None else self.shortest)
        if not isinstance(self.note, str) or self.note.count(PLACE) != 1:
            raise UserError(f"reward.options.note is {self.note!r}; give a text with {PLACE} once")

    def steer(self, problem_key: str, group_size: int, seed: int, max_length: int) -> list[Steering]:
        """The same budget for each sample. UserError where no budget fits below `max_length`."""
        longest = tokens_within("longest", self.longest, 1.0, max_length)
        if self.shortest > longest:
            raise UserError(
                f"reward.options.shortest ({self.shortest}) is above the longest budget ({longest}); "
                "lower it, or raise reward.options.longest or rollout.max_new_tokens"
            )
        target = random.Random(f"budget/{seed}/{problem_key}").randint(self.shortest, longest)
        return [Steering(note=self.note.replace(PLACE, str(target)), target_length=target)] * group_size


def targets(outcomes: Sequence[Outcome]) -> list[int]:
    """The tokens each trace was asked for; ValueError where a prompt named none."""
    for row, outcome in enumerate(outcomes):
        if outcome.target_length is None:
            raise ValueError(f"trace {row} has no target length: its prompt named no budget")
    return [outcome.target_length for outcome in outcomes if outcome.target_length is not None]
