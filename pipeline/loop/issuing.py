"""Which problems are issued next: epoch after epoch, each problem once an epoch, the same order for the same seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.problems import Problem, epoch_order


@dataclass
class Issuer:
    """Hands out problems in the epoch's order; `again` holds those taken back by a resume."""

    problems: Sequence[Problem]
    seed: int
    epoch: int = 0
    position: int = 0
    again: list[tuple[str, int]] = field(default_factory=list)
    order_of: Callable[[int, int, int], list[int]] = epoch_order

    def __post_init__(self) -> None:
        self._by_id = {problem.id: problem for problem in self.problems}
        self._order = self.order_of(len(self.problems), self.seed, self.epoch)

    def draw(self, count: int) -> list[tuple[Problem, int]]:
        """The next `count` problems with their epochs."""
        return [self._one() for _ in range(count)]

    def _one(self) -> tuple[Problem, int]:
        if self.again:
            problem_id, epoch = self.again.pop(0)
            return self._by_id[problem_id], epoch
        if self.position == len(self._order):
            self.epoch, self.position = self.epoch + 1, 0
            self._order = self.order_of(len(self.problems), self.seed, self.epoch)
        problem = self.problems[self._order[self.position]]
        self.position += 1
        return problem, self.epoch

    def to_state(self) -> dict[str, object]:
        """A JSON-ready copy of the position."""
        return {"epoch": self.epoch, "position": self.position, "again": [list(pair) for pair in self.again]}

    def restore(self, state: dict, taken_back: list[tuple[str, int]]) -> None:
        """Goes on from a saved position, with unfinished problems first. Unknown ids raise ValueError."""
        again = [*taken_back, *((str(p), int(e)) for p, e in state["again"])]
        unknown = [p for p, _ in again if p not in self._by_id]
        if unknown:
            raise ValueError(f"the checkpoint names problems that are no longer in the data, such as {unknown[0]}")
        self.epoch, self.position, self.again = int(state["epoch"]), int(state["position"]), again
        self._order = self.order_of(len(self.problems), self.seed, self.epoch)
