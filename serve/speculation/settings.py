"""What an engine with adaptive draft lengths is asked to be, and the vLLM options that ask for it. Imports no vLLM."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pipeline.config import UserError, nearest, write_whole
from serve.speculation.build import make_policy
from serve.speculation.controller import Controller
from serve.speculation.costs import CostModel
from serve.speculation.logs import DecisionLog
from serve.speculation.policy import Policy

KEY = "adaptive_speculation"  # in vLLM's additional_config
SCHEDULER = "serve.speculation.vllm_scheduler.AdaptiveScheduler"
CAP = "max_draft_tokens"  # in a request's sampling_params.extra_args
LARGEST_BATCH = 1 << 20
FIXED_LENGTH_METHODS = ("suffix",)  # their drafters assert the configured length


@dataclass(frozen=True)
class Settings:
    """`policy` and its `options` (see `make_policy`), the `costs` of a step, the token that ends the thinking (None:
    everything is answer), a file for decisions, and a file the policy's memory is read from and saved to."""

    policy: str = "goodput"
    options: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    end_of_thinking: int | None = None
    log: str | None = None
    memory: str | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Settings":
        """From plain data. UserError for unknown keys."""
        known = [item.name for item in fields(cls)]
        for key in config:
            if key not in known:
                raise UserError(f"{KEY} has the unknown key {key!r}{nearest(key, known)}")
        return cls(**config)

    def parts(self, k_max: int) -> tuple[Policy, CostModel]:
        """The policy, with its saved memory where there is any, and the costs. UserError when they cannot be made."""
        costs = CostModel.from_config(dict(self.costs))
        policy = make_policy(self.policy, k_max, self.options, costs)
        if self.memory is not None and Path(self.memory).exists():
            self._recall(policy, Path(self.memory))
        return policy, costs

    @staticmethod
    def _recall(policy: Policy, file: Path) -> None:
        try:
            policy.load_state_dict(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(f"{file}: cannot read the policy's memory ({error.strerror})") from None
        except UserError as error:
            raise UserError(f"{file}: {error}; move the file away, or go back to what wrote it") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{file} is no memory of a draft-length policy ({error!r}); move it away") from None

    def controller(self, k_max: int) -> Controller:
        """Policy, costs and log, put together."""
        policy, costs = self.parts(k_max)
        return Controller(policy, costs, None if self.log is None else DecisionLog(self.log))

    def save(self, controller: Controller) -> None:
        """Writes the policy's memory, whole or not at all. OSError where the file cannot be written."""
        if self.memory is not None:
            memory = Path(self.memory)
            memory.parent.mkdir(parents=True, exist_ok=True)
            write_whole(memory, json.dumps(controller.policy.state_dict()))


def engine_options(settings: Settings, speculative: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM engine arguments for `settings` on top of a `speculative_config` (method, num_speculative_tokens, ...).

    The batch-size table in it declares every length, which engines with captured graphs need, and opens the lookup
    that the scheduler rewrites. UserError for methods whose draft length is fixed.
    """
    method, k_max = speculative.get("method"), speculative.get("num_speculative_tokens")
    if method in FIXED_LENGTH_METHODS:
        raise UserError(f"the drafter {method} cannot change its draft length; use it without a policy")
    if not isinstance(k_max, int) or k_max < 1:
        raise UserError(f"num_speculative_tokens must be a whole number of at least 1, not {k_max!r}")
    settings.parts(k_max)  # refuses here what the engine would refuse only after loading a model
    return {
        "scheduler_cls": SCHEDULER,
        "speculative_config": {**speculative, "num_speculative_tokens_per_batch_size": tiers(k_max)},
        "additional_config": {KEY: asdict(settings)},
    }


def tiers(k_max: int) -> list[list[int]]:
    """[[first batch, last batch, k], ...] with every k from k_max (one request) down to 0."""
    return [[i + 1, i + 1 if i < k_max else LARGEST_BATCH, k_max - i] for i in range(k_max + 1)]


def cap_of(extra_args: Mapping[str, Any] | None) -> tuple[int | None, bool]:
    """A request's cap on draft tokens, and whether it was usable; one that is not a whole number >= 0 is left out."""
    value = (extra_args or {}).get(CAP)
    if value is None:
        return None, True
    usable = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return (value, True) if usable else (None, False)
