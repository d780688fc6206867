"""What is kept of a decision: tags for the registered version, rows for a table, figures for a run. Pure."""

import re
from collections.abc import Sequence

from serve.promotion.check import Check

METRICS = {  # check -> the catalogue's name
    "accuracy": "eval_accuracy",
    "unknown rate": "eval_unknown_rate",
    "truncation rate": "eval_truncated_rate",
    "tokens a reply, candidate": "eval_tokens_mean",
    "necessary share, candidate": "eval_nrp_share",
}


def tags_of(decision: str, reason: str, checks: Sequence[Check], at: str, against: str) -> dict[str, str]:
    """`gate.decision`, `gate.reason`, `gate.at` (time), `gate.against` (the champion) and a tag for each figure."""
    figures = {f"gate.{_slug(check.limit)}": _figure(check) for check in checks if check.value is not None}
    return {**figures, "gate.decision": decision, "gate.reason": reason, "gate.at": at, "gate.against": against}


def _figure(check: Check) -> str:
    return check.text.removeprefix(f"{check.limit} ")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def rows_of(checks: Sequence[Check]) -> list[dict[str, object]]:
    """A row for each limit."""
    return [check.row() for check in checks]


def metrics_of(checks: Sequence[Check]) -> dict[str, float]:
    """The figures that the metrics catalogue has."""
    return {METRICS[c.limit]: c.value for c in checks if c.limit in METRICS and c.value is not None}


def table_text(checks: Sequence[Check]) -> str:
    """The limits, one a line, the crossed ones marked."""
    marks = {"crossed": "CROSSED", "held": "", "shown": ""}
    return "\n".join(f"  {marks[str(check.row()['outcome'])]:8}{check.text}" for check in checks)
