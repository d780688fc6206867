"""A replica's side of its tiers: the folder both talk through."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve.kv_tier.weights_mark import read_counters, write_mark

TRANSFER = "kv_transfer_config"
EXTRA = "kv_connector_extra_config"


class TierFolder:
    """Lives as long as the replica. `engine_kwargs` are those given with the folder's name in them, where they ask for
    tiers at all; without tiers nothing here does anything."""

    def __init__(self, engine_kwargs: Mapping[str, Any]) -> None:
        self.engine_kwargs, self._folder = dict(engine_kwargs), None
        transfer = engine_kwargs.get(TRANSFER) or {}
        extra = transfer.get(EXTRA) or {}
        if "cpu_bytes_to_use" in extra:
            self._folder = tempfile.TemporaryDirectory(prefix="kv-tiers-")
            self.engine_kwargs[TRANSFER] = transfer | {EXTRA: extra | {"marks_dir": self._folder.name}}

    @property
    def there(self) -> bool:
        """Whether the engine has tiers."""
        return self._folder is not None

    def mark(self, digest: str) -> None:
        """These weights are in the engine: to be called before the reset that turns the tiers to them. OSError: then
        the disk tier stays off."""
        if self._folder:
            write_mark(Path(self._folder.name), digest)

    def counters(self) -> dict[str, Any]:
        """What each tier has told, by its name."""
        return read_counters(Path(self._folder.name)) if self._folder else {}
