"""The soft overlong punishment of DAPO (arXiv 2503.14476, section 3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.config import UserError
from pipeline.rewards.options import check_number, check_tokens, tokens_within
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class DapoOverlong:
    """1 if right and `wrong` if not, plus a punishment of 0 up to limit - cache tokens, then falling in a straight line
    to -1 at the limit, and -1 beyond.

    wrong -1 as in the paper, whose limit is 20,480 tokens and cache 4,096: here by default the longest response and a
    fifth of the limit. Left out: DAPO's other parts (its clipping is `learner.clip_high` 0.28; its dynamic sampling is
    the curriculum at kappa 0). No wrong trace ranks above a right one, since `wrong` is at most 0.
    """

    limit: int | None = None
    cache: int | None = None
    wrong: float = -1.0

    name: ClassVar[str] = "dapo_overlong"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_tokens("limit", self.limit)
        check_tokens("cache", self.cache)
        check_number("wrong", self.wrong, "a number of at most 0", lambda value: value <= 0)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        limit = tokens_within("limit", self.limit, 1.0, max_length)
        cache = self.cache or max(1, round(0.2 * limit))
        if cache > limit:
            raise UserError(f"reward.options.cache is {cache} tokens, more than the limit of {limit}; lower it")
        punished = [punishment(o.length, limit, cache) for o in outcomes]
        correctness = [1.0 if o.correct else self.wrong for o in outcomes]
        return over_width([sum(pair) for pair in zip(correctness, punished, strict=True)], width)


def punishment(length: int, limit: int, cache: int) -> float:
    """Between 0 (up to `limit` - `cache` tokens) and -1 (from `limit` on)."""
    return -min(max((length - (limit - cache)) / cache, 0.0), 1.0)
