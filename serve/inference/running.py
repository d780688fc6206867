"""How many requests vLLM's scheduler ran at a time, noted step by step."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

MOST = "most_running"


def watch(counters: Counter[str]) -> Callable[..., StatLoggerBase]:
    """A factory of loggers that keep the highest number of running sequences in `counters`."""

    class Running(StatLoggerBase):
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...

        def record(self, scheduler_stats: Any, *rest: Any, **named: Any) -> None:
            if scheduler_stats is not None:
                counters[MOST] = max(counters[MOST], scheduler_stats.num_running_reqs)

        def log_engine_initialized(self) -> None: ...

    return Running
