"""Counters of the engine's process for Prometheus, read when they are asked for."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

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
