"""Counters of the engine's process, read when they are asked for: by Prometheus there, or as a file.

vLLM keeps an endpoint's scheduler in a process of its own, which nobody scrapes; the file is how they get out of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from pipeline.config import write_whole

Read = Callable[[], Mapping[str, float]]
_published: dict[str, "_Figures"] = {}


class _Figures(Collector):
    def __init__(self, name: str, label: str, read: Read) -> None:
        self.name, self.label, self.read = name, label, read

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self.name, f"By {self.label}, of this engine.", labels=[self.label])
        for key, value in dict(self.read()).items():
            family.add_metric([str(key)], value)
        yield family


def publish(name: str, read: Read, label: str = "event") -> None:
    """`<name>_total{<label>="<key>"}` for each key of `read()`, among the metrics of this process. What was published
    under the name before (by an engine that this process had earlier) goes away."""
    if name in _published:
        REGISTRY.unregister(_published.pop(name))
    _published[name] = _Figures(name, label, read)
    REGISTRY.register(_published[name])


def write_figures(path: str | Path) -> None:
    """All that is published in this process as JSON, {name: {key: value}}; whole or not at all. OSError where the file
    cannot be written."""
    told = {name: {str(key): value for key, value in dict(one.read()).items()} for name, one in _published.items()}
    write_whole(Path(path), json.dumps(told, indent=1) + "\n")
