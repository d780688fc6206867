"""How large the share of easy groups in a batch may be (kappa).

kappa is easy / (easy + mixed) of the final batch. Easy groups are where redundant tokens are punished, so kappa
sets how much of that a batch carries; DECS (arXiv 2509.25827) ties it to how much of the thinking is necessary.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from pipeline.config import UserError
from pipeline.config.schema import Curriculum, KappaRule

State = dict[str, str | float | int]


class Rule(ABC):
    """One rule: a value and how it moves. Its whole state is in `state()`, for the checkpoint."""

    name: ClassVar[KappaRule]

    def __init__(self, kappa: float, nrp_ratio: float, rate: float) -> None:
        self.kappa = kappa
        self.nrp_ratio = nrp_ratio  # of the last batch that had one
        self.rate = rate
        self.skipped = 0  # batches without a detected prefix

    @abstractmethod
    def _moved(self, change: float, easy_share: float) -> float:
        """kappa after the NRP ratio changed by `change`."""

    def update(self, nrp_ratio: float | None, easy_share: float) -> float:
        """Move kappa after a training step and return it.

        `nrp_ratio` is the mean share of necessary thinking over the batch's correct responses that have a detected
        prefix; None where there is none: the step is skipped, nothing moves, `skipped` counts it (a 0/0 would stay
        in kappa for ever). `easy_share` is the share of easy groups among those sampled for this batch. Both in
        [0, 1], ValueError otherwise.
        """
        _check_share("easy_share", easy_share)
        if nrp_ratio is None:
            self.skipped += 1
            return self.kappa
        _check_share("nrp_ratio", nrp_ratio)
        self.kappa = self._moved(nrp_ratio - self.nrp_ratio, easy_share)
        self.nrp_ratio = nrp_ratio
        return self.kappa

    def state(self) -> State:
        """Plain values that `load` takes back."""
        return {"rule": self.name.value, "kappa": self.kappa, "nrp_ratio": self.nrp_ratio, "skipped": self.skipped}

    def load(self, state: State) -> None:
        """Continue from `state`; UserError if another rule wrote it or a value is missing."""
        if state.get("rule") != self.name.value:
            raise UserError(
                f"the checkpoint's curriculum follows rule '{state.get('rule')}' and curriculum.rule is "
                f"'{self.name.value}'; set it to the former or start a new run"
            )
        missing = {"kappa", "nrp_ratio", "skipped"} - state.keys()
        if missing:
            raise UserError(f"the checkpoint's curriculum state lacks {', '.join(sorted(missing))}; start a new run")
        self.kappa = float(state["kappa"])
        self.nrp_ratio = float(state["nrp_ratio"])
        self.skipped = int(state["skipped"])


class FeedbackClipped(Rule):
    """Paper eq. 11: kappa + rate * change, clipped to [0, easy share available]."""

    name = KappaRule.FEEDBACK_CLIPPED

    def _moved(self, change: float, easy_share: float) -> float:
        return min(max(self.kappa + self.rate * change, 0.0), easy_share)


class FeedbackUnclipped(Rule):
    """As released by the authors: no clip, so kappa = start + rate * (ratio - first ratio); below 0 means no easy
    groups at all."""

    name = KappaRule.FEEDBACK_UNCLIPPED

    def _moved(self, change: float, easy_share: float) -> float:
        return self.kappa + self.rate * change


class Constant(Rule):
    """Always the starting value."""

    name = KappaRule.CONSTANT

    def _moved(self, change: float, easy_share: float) -> float:
        return self.kappa


RULES: dict[KappaRule, type[Rule]] = {rule.name: rule for rule in (FeedbackClipped, FeedbackUnclipped, Constant)}


def kappa_rule(config: Curriculum) -> Rule:
    """The rule that the curriculum section asks for, at its start."""
    return RULES[config.rule](kappa=config.kappa_start, nrp_ratio=config.nrp_start, rate=config.kappa_rate)


def _check_share(name: str, value: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise ValueError(f"{name} is {value}, outside 0..1")
