"""What the asynchronous proposer of speculative speculative decoding is asked to be. Imports no vLLM."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pipeline.config import UserError, nearest

KEY = "ssd"  # in vLLM's additional_config
PROPOSER = "serve.speculation.ssd_proposer.BranchingProposer"
BACKUPS = ("draft", "none")


@dataclass(frozen=True)
class SsdSettings:
    """`branches` drafts prepared for each request while its last draft is verified; `backup` is what a request gets
    whose outcome was not among them: a plain `draft`, or `none`. `top` and `decay` are the guess at how often the
    token after the accepted ones is the drafter's first choice, and at how fast misses fall with more choices (see
    `serve.speculation.ssd.Saguaro`): they shape how the branches are spread.
    """

    branches: int = 16
    backup: str = "draft"
    top: float = 0.6
    decay: float = 1.0

    def __post_init__(self) -> None:
        if self.branches < 1:
            raise UserError(f"{KEY}.branches must be at least 1, it is {self.branches}")
        if self.backup not in BACKUPS:
            raise UserError(f"{KEY}.backup is {self.backup!r}{nearest(str(self.backup), BACKUPS)}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "SsdSettings":
        """From plain data. UserError for unknown keys."""
        known = [item.name for item in fields(cls)]
        for key in config:
            if key not in known:
                raise UserError(f"{KEY} has the unknown key {key!r}{nearest(key, known)}")
        return cls(**config)

    def as_config(self) -> dict[str, Any]:
        return asdict(self)
