"""The face of every draft-length policy: decide, observe, save, load, count."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from pipeline.config import UserError
from serve.speculation.state import State

FORMAT = 1
COUNTERS = ("decisions", "off", "switches", "observed", "tokens", "cost")


class Policy(ABC):
    """Chooses how many tokens to draft for each sequence in the next step; 0 turns speculation off.

    `dwell` holds a choice for that many decisions (less when a cap or another context intervenes): changing the
    length every step costs an engine more than it gains. Same seed and same calls give the same choices.
    """

    name: ClassVar[str]

    def __init__(self, k_max: int, seed: int = 0, dwell: int = 1) -> None:
        if k_max < 1 or dwell < 1:
            raise UserError(f"a policy needs k_max >= 1 and dwell >= 1, not k_max={k_max} and dwell={dwell}")
        self.k_max, self.seed, self.dwell = k_max, seed, dwell
        self.counters: dict[str, float] = dict.fromkeys(COUNTERS, 0)
        self._held: tuple[int, str] | None = None  # last choice and its context
        self._holds = 0  # decisions for which it stays
        self._last: State | None = None

    def decide(self, state: State) -> int:
        """The draft length for `state`, in 0 ... state.limit. UserError when state.k_max is not the policy's."""
        if state.k_max != self.k_max:
            raise UserError(f"this policy was built for k_max={self.k_max}; the state says {state.k_max}")
        held = self._held
        if held is not None and self._holds > 0 and held[1] == state.context and held[0] <= state.limit:
            k, self._holds = held[0], self._holds - 1
        else:
            k, self._holds = min(self._choose(state), state.limit), self.dwell - 1
        self.counters["decisions"] += 1
        self.counters["off"] += k == 0
        self.counters["switches"] += held is not None and held[0] != k
        self._held, self._last = (k, state.context), state
        return k

    def observe(
        self,
        k: int,
        emitted: Sequence[int],
        cost: float,
        state: State | None = None,
        asked: Sequence[int] | None = None,
    ) -> None:
        """What a decision came to: tokens emitted by each sequence (1 ... asked + 1), and the cost units of drafting
        and verifying them, together.

        `state` is the one the decision was made for (None: the latest; engines report one step late and must name
        it). `asked` is what each request's cap left of `k` (None: all of it).
        """
        state = state or self._last
        if state is None:
            raise UserError("observe() came before any decide(); give the state of the decision")
        asked = [k] * len(emitted) if asked is None else list(asked)
        if len(asked) != len(emitted) or not emitted or cost <= 0:
            raise UserError("observe() needs one `asked` for each `emitted`, at least one, and a cost above 0")
        for want, got in zip(asked, emitted, strict=True):
            if not (0 <= want <= k <= self.k_max and 1 <= got <= want + 1):
                raise UserError(f"{got} tokens emitted of {want} asked (k={k}, k_max={self.k_max}) is impossible")
        self.counters["observed"] += 1
        self.counters["tokens"] += sum(emitted)
        self.counters["cost"] += cost
        self._learn(k, asked, emitted, cost, state)

    @abstractmethod
    def _choose(self, state: State) -> int:
        """A draft length; values above state.limit are cut."""

    def _learn(self, k: int, asked: Sequence[int], emitted: Sequence[int], cost: float, state: State) -> None:
        """Take in a checked observation. Policies that do not learn leave it."""
        return None

    def _memory(self) -> dict[str, Any]:
        """What a subclass must save, as JSON-ready data."""
        return {}

    def _recall(self, saved: dict[str, Any]) -> None:
        """The inverse of `_memory`."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Everything learned and counted, as JSON-ready data. A decision in flight is not kept."""
        return {
            "format": FORMAT,
            "policy": self.name,
            "k_max": self.k_max,
            "held": self._held,
            "holds": self._holds,
            "counters": dict(self.counters),
            "memory": self._memory(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from `state_dict()`. UserError when it is another policy's, or of another k_max or format."""
        for key, mine in (("format", FORMAT), ("policy", self.name), ("k_max", self.k_max)):
            if saved.get(key) != mine:
                raise UserError(f"the saved policy has {key}={saved.get(key)!r}; this one has {mine!r}")
        self.counters = dict(saved["counters"])
        self._held = None if saved["held"] is None else (int(saved["held"][0]), str(saved["held"][1]))
        self._holds = int(saved["holds"])
        self._recall(saved["memory"])
