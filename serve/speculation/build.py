"""From plain data to a policy."""

import inspect
from collections.abc import Mapping
from typing import Any

from pipeline.config import UserError, nearest
from serve.speculation.costs import CostModel
from serve.speculation.fixed import Static, TablePolicy
from serve.speculation.goodput import Goodput, Thompson
from serve.speculation.learned import LearnedDepth
from serve.speculation.policy import Policy
from serve.speculation.ucb import UCB

POLICIES: dict[str, type[Policy]] = {
    kind.name: kind for kind in (Static, TablePolicy, UCB, Thompson, Goodput, LearnedDepth)
}


def make_policy(
    name: str, k_max: int, options: Mapping[str, Any] | None = None, costs: CostModel | None = None
) -> Policy:
    """The policy `name` with its constructor's `options`. UserError for unknown names and missing ones."""
    if name not in POLICIES:
        raise UserError(f"unknown speculation policy {name!r}{nearest(name, POLICIES)}")
    kind = POLICIES[name]
    parameters = inspect.signature(kind).parameters
    known = [key for key in parameters if key not in ("k_max", "costs")]
    keys = dict(options or {})
    for key in keys:
        if key not in known:
            raise UserError(f"policy {name} has no option {key!r}{nearest(key, known)}")
    if "costs" in parameters:
        if costs is None:
            raise UserError(f"policy {name} needs the costs of a step; give them, or use ucb, which measures them")
        keys["costs"] = costs
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key != "k_max" and key not in keys:
            raise UserError(f"policy {name} needs the option {key!r}")
    return kind(k_max=k_max, **keys)
