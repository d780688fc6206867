"""One reading of a replica's Prometheus page, and what changed between readings of the same process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

PROCESS = "process_start_time_seconds"  # tells replicas apart: one address answers for all of them

Buckets = Mapping[float, float]  # upper bound -> observations up to it


@dataclass(frozen=True)
class Sample:
    """`at` in seconds of any clock; `values` are summed over labels; `buckets` are those of histograms, cumulative."""

    at: float
    process: str
    values: Mapping[str, float] = field(default_factory=dict)
    buckets: Mapping[str, Buckets] = field(default_factory=dict)


def read_sample(text: str, at: float) -> Sample:
    """ValueError for what is no page of Prometheus figures."""
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            if "le" in labels:
                own = buckets.setdefault(family.name, {})
                bound = float(labels["le"])
                own[bound] = own.get(bound, 0.0) + value
            else:
                values[name] = values.get(name, 0.0) + value
    return Sample(at, repr(values.get(PROCESS)), values, buckets)


def by_process(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each process, in order."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.process, []).append(sample)
    return list(found.values())


def increase(samples: Sequence[Sample], name: str) -> float | None:
    """How much a counter grew, over all processes that were read twice; None where none of them has it."""
    grown = [
        last.values[name] - first.values.get(name, 0.0)
        for first, last in _ends(samples)
        if name in last.values
    ]  # fmt: skip
    return sum(grown) if grown else None


def new_observations(samples: Sequence[Sample], name: str) -> dict[float, float]:
    """The buckets of what a histogram observed between the readings, over all processes; empty where none has it."""
    found: dict[float, float] = {}
    for first, last in _ends(samples):
        before = first.buckets.get(name, {})
        for bound, count in last.buckets.get(name, {}).items():
            found[bound] = found.get(bound, 0.0) + count - before.get(bound, 0.0)
    return found


def _ends(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    return [(own[0], own[-1]) for own in by_process(samples) if len(own) > 1]
