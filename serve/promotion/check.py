"""One limit held against one figure."""

from collections.abc import Sequence
from dataclasses import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True)
class Check:
    """`value` with its interval (None: not known, or drawn from too little), what is `allowed` (None: only shown), and
    whether the limit is `crossed`."""

    limit: str
    value: float | None
    interval: Interval | None = None
    allowed: float | None = None
    crossed: bool = False

    @property
    def text(self) -> str:
        """`accuracy difference -0.12 [-0.17, -0.07], allowed -0.05`."""
        value = "unknown" if self.value is None else f"{self.value:.4g}"
        interval = f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]" if self.interval else ""
        allowed = "" if self.allowed is None else f", allowed {self.allowed:.4g}"
        return f"{self.limit} {value}{interval}{allowed}"

    def row(self) -> dict[str, object]:
        """For a table."""
        low, high = self.interval or (None, None)
        outcome = "crossed" if self.crossed else "shown" if self.allowed is None else "held"
        return {
            "limit": self.limit,
            "value": self.value,
            "low": low,
            "high": high,
            "allowed": self.allowed,
            "outcome": outcome,
        }


@dataclass(frozen=True)
class Decision:
    """`checks` in the order of the table; `note` says what could not be compared. `lacking` says what the decision
    needs and does not have: then nothing passes."""

    checks: tuple[Check, ...]
    note: str = ""
    lacking: str = ""

    @property
    def passed(self) -> bool:
        """No limit is crossed, and nothing was lacking to see that."""
        return not self.crossed and not self.lacking

    @property
    def crossed(self) -> tuple[Check, ...]:
        """The limits that are crossed."""
        return tuple(check for check in self.checks if check.crossed)

    @property
    def reason(self) -> str:
        """One line."""
        if not self.passed:
            return "; ".join(text for text in (self.lacking, told(self.crossed)) if text)
        return "all limits hold" + (f" ({self.note})" if self.note else "")


def told(crossed: Sequence[Check]) -> str:
    """The crossed limits, in one line."""
    return "; ".join(check.text for check in crossed)
