"""How large the share of easy groups in a batch may be (kappa).

kappa is easy / (easy + mixed) of the final batch. Easy groups are where redundant tokens are punished, so kappa
sets how much of that a batch carries; DECS (arXiv 2509.25827) ties it to how much of the thinking is necessary.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from pipeline.config import UserError
from pipeline.config.schema import Curriculum, KappaRule

State = dict[str, str | float | int | None]

LIMITS = frozenset({"rule", "max_rounds", "min_batch_share"})  # options that every rule reads


class Rule(ABC):
    """One rule: a value and how it moves. Its whole state is in `state()`, for the checkpoint.

    `kappa` None: no limit on easy groups, they enter in the order sampled. `reads`: the rule's own options.
    `needs_ratio`: it moves by the NRP ratio, so the judge must be asked whatever the reward needs.
    """

    name: ClassVar[KappaRule]
    reads: ClassVar[frozenset[str]] = frozenset()
    needs_ratio: ClassVar[bool] = False

    def __init__(self, config: Curriculum) -> None:
        self.config = config
        self.kappa: float | None = config.kappa_start
        self.nrp_ratio = config.nrp_start  # of the last batch that had one
        self.steps = 0  # training steps, not rounds of sampling
        self.skipped = 0  # batches without a detected prefix

    @abstractmethod
    def _moved(self, change: float | None, easy_share: float) -> float | None:
        """kappa after a step in which the NRP ratio changed by `change` (None: there was no ratio)."""

    def update(self, nrp_ratio: float | None, easy_share: float) -> float | None:
        """Move kappa after a training step and return it.

        `nrp_ratio` is the mean share of necessary thinking over the batch's correct responses that have a detected
        prefix; None where there is none: the feedback rules then stay where they are and `skipped` counts it (a 0/0
        would stay in kappa for ever). `easy_share` is the share of easy groups among those sampled for this batch.
        Both in [0, 1], ValueError otherwise.
        """
        _check_share("easy_share", easy_share)
        change = None
        if nrp_ratio is not None:
            _check_share("nrp_ratio", nrp_ratio)
            change, self.nrp_ratio = nrp_ratio - self.nrp_ratio, nrp_ratio
        self.skipped += nrp_ratio is None
        self.steps += 1
        self.kappa = self._moved(change, easy_share)
        return self.kappa

    def state(self) -> State:
        """Plain values that `load` takes back."""
        return {
            "rule": self.name.value,
            "kappa": self.kappa,
            "nrp_ratio": self.nrp_ratio,
            "steps": self.steps,
            "skipped": self.skipped,
        }

    def load(self, state: State) -> None:
        """Continue from `state`; UserError if another rule wrote it or a value is missing."""
        if state.get("rule") != self.name.value:
            raise UserError(
                f"the checkpoint's curriculum follows rule '{state.get('rule')}' and curriculum.rule is "
                f"'{self.name.value}'; set it to the former or start a new run"
            )
        if missing := self.state().keys() - state.keys():
            raise UserError(f"the checkpoint's curriculum state lacks {', '.join(sorted(missing))}; start a new run")
        self.kappa = None if state["kappa"] is None else float(state["kappa"])
        self.nrp_ratio = float(state["nrp_ratio"])
        self.steps, self.skipped = int(state["steps"]), int(state["skipped"])


class FeedbackClipped(Rule):
    """Paper eq. 11: kappa + rate * change, clipped to [0, easy share available]."""

    name = KappaRule.FEEDBACK_CLIPPED
    reads = frozenset({"kappa_rate", "kappa_start", "nrp_start"})
    needs_ratio = True

    def _moved(self, change: float | None, easy_share: float) -> float | None:
        if change is None:
            return self.kappa
        return min(max(self.kappa + self.config.kappa_rate * change, 0.0), easy_share)


class FeedbackUnclipped(Rule):
    """As released by the authors: no clip, so kappa = start + rate * (ratio - first ratio); below 0 means no easy
    groups at all."""

    name = KappaRule.FEEDBACK_UNCLIPPED
    reads = FeedbackClipped.reads
    needs_ratio = True

    def _moved(self, change: float | None, easy_share: float) -> float | None:
        return self.kappa if change is None else self.kappa + self.config.kappa_rate * change


class Linear(Rule):
    """Open loop: from `easy_ratio_start` to `easy_ratio_end` over `schedule_steps` training steps, then constant."""

    name = KappaRule.LINEAR
    reads = frozenset({"easy_ratio_start", "easy_ratio_end", "schedule_steps"})

    def __init__(self, config: Curriculum) -> None:
        super().__init__(config)
        self.kappa = config.easy_ratio_start

    def _moved(self, change: float | None, easy_share: float) -> float | None:
        start, end = self.config.easy_ratio_start, self.config.easy_ratio_end
        return start + (end - start) * min(self.steps / self.config.schedule_steps, 1.0)


class Constant(Rule):
    """Always the starting value."""

    name = KappaRule.CONSTANT
    reads = frozenset({"kappa_start"})

    def _moved(self, change: float | None, easy_share: float) -> float | None:
        return self.kappa


class Off(Rule):
    """No curriculum: whatever share of easy groups is sampled is trained on."""

    name = KappaRule.OFF

    def __init__(self, config: Curriculum) -> None:
        super().__init__(config)
        self.kappa = None

    def _moved(self, change: float | None, easy_share: float) -> float | None:
        return None


RULES: dict[KappaRule, type[Rule]] = {
    rule.name: rule for rule in (FeedbackClipped, FeedbackUnclipped, Linear, Constant, Off)
}


def kappa_rule(config: Curriculum) -> Rule:
    """The rule that the curriculum section asks for, at its start.

    UserError for an option that was moved from its default and that the rule does not read: it would do nothing.
    """
    rule = RULES[config.rule]
    for option, value in config.model_dump().items():
        if option not in rule.reads | LIMITS and value != Curriculum.model_fields[option].default:
            readers = ", ".join(name.value for name, other in RULES.items() if option in other.reads)
            raise UserError(
                f"curriculum.{option} is {value:g}, and curriculum.rule '{rule.name.value}' does not read it; leave it "
                f"out, or use a rule that does ({readers})"
            )
    return rule(config)


def _check_share(name: str, value: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise ValueError(f"{name} is {value}, outside 0..1")
