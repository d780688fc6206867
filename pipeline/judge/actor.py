"""The judge as an actor: finds prefixes of many traces in waves.

Wave k asks for the k-th segment of every trace that has no right one yet, so a trace costs no more calls than it has
segments up to its first right one, and the judge sees large batches. A segment that could not be judged counts as "no":
that punishes too little, never too much. Failures are counted, and too many end the run.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Real

from pipeline.config.schema import Grading as GradingConfig
from pipeline.config.schema import Judge as JudgeConfig
from pipeline.grading import configure
from pipeline.judge.base import JudgeItem, SegmentJudge, build_judge
from pipeline.judge.waves import FailureWatch, PrefixRequest, PrefixResult, Search, VerdictCache

BATCH = 256  # items a call; the deadline is for one call
COUNTED = ("requests", "found", "not_found", "waves", "calls", "judged", "cache_hits", "failures")
REASONS = ("deadline", "exception", "item", "invalid")


class JudgeActor:
    """Plain async class, wrapped by whoever places it. State is touched in the event loop only."""

    def __init__(
        self,
        config: JudgeConfig,
        judge: SegmentJudge | None = None,
        batch: int = BATCH,
        grading: GradingConfig | None = None,
    ) -> None:
        """`grading` sets up this process's grading pool, which the exact judge compares answers with."""
        if grading is not None:
            configure(grading.workers, grading.deadline_s)
        self._config, self._batch = config, batch
        self._judge = build_judge(config) if judge is None else judge
        self._cache, self._watch = VerdictCache(), FailureWatch(config.max_failure_rate)
        self._counts: Counter[str] = Counter()
        self._last_error = ""

    async def find_prefixes(self, requests: Sequence[PrefixRequest]) -> list[PrefixResult]:
        """The necessary prefix of each trace, in the order asked. Raises JudgeFailure above the failure rate."""
        searches = [Search(request) for request in requests]
        self._counts["requests"] += len(searches)
        while waiting := [search for search in searches if search.open]:
            self._counts["waves"] += 1
            items = [search.next_item() for search in waiting]
            verdicts = await self._verdicts(items)
            for search, item in zip(waiting, items, strict=True):
                search.verdicts.append(verdicts[item])
        results = [search.result() for search in searches]
        found = sum(result.yes_index is not None for result in results)
        self._counts.update(found=found, not_found=len(results) - found)
        return results

    async def counters(self) -> dict[str, int]:
        """Counts since the start: requests, found, not_found, waves, calls, judged, cache_hits, failures, and
        failures_<reason>: deadline, exception (the call), item, invalid (no probability)."""
        return {name: self._counts[name] for name in (*COUNTED, *(f"failures_{r}" for r in REASONS))}

    async def _verdicts(self, items: Sequence[JudgeItem]) -> dict[JudgeItem, bool]:
        """Verdicts of one wave: each distinct item at most once, those known from the cache."""
        verdicts: dict[JudgeItem, bool] = {}
        unknown: list[JudgeItem] = []
        for item in dict.fromkeys(items):
            known = self._cache.get(item)
            if known is None:
                unknown.append(item)
            else:
                verdicts[item] = known
        self._counts["cache_hits"] += len(items) - len(unknown)
        for start in range(0, len(unknown), self._batch):
            verdicts |= await self._ask(unknown[start : start + self._batch])
        return verdicts

    async def _ask(self, batch: list[JudgeItem]) -> dict[JudgeItem, bool]:
        """One call. Failed items are "no" and are not remembered."""
        answers = await self._probabilities(batch)
        self._counts.update(calls=1, judged=len(batch))
        failed = [isinstance(answer, str) for answer in answers]
        for answer in answers:
            if isinstance(answer, str):
                self._counts.update(["failures", f"failures_{answer}"])
        verdicts = {}
        for item, answer in zip(batch, answers, strict=True):
            verdicts[item] = not isinstance(answer, str) and answer >= self._config.threshold
            if not isinstance(answer, str):
                self._cache.put(item, verdicts[item])
        self._watch.add(failed, self._last_error)
        return verdicts

    async def _probabilities(self, batch: list[JudgeItem]) -> list[float | str]:
        """A probability for each item, or the name of its failure."""
        try:
            answers = await asyncio.wait_for(_in_thread(self._judge.probabilities, batch), self._config.deadline_s)
        except TimeoutError:
            self._last_error = f"no reply within judge.deadline_s ({self._config.deadline_s:g} s)"
            return ["deadline"] * len(batch)
        except Exception as error:  # noqa: BLE001  (whatever a judge raises is counted as a failure of the batch)
            self._last_error = f"{type(error).__name__}: {error}"
            return ["exception"] * len(batch)
        if len(answers) != len(batch):
            self._last_error = f"{len(answers)} probabilities for {len(batch)} segments"
            return ["invalid"] * len(batch)
        return [self._checked(answer) for answer in answers]

    def _checked(self, answer: float) -> float | str:
        number = isinstance(answer, Real)
        if number and 0 <= answer <= 1:
            return float(answer)
        if number and math.isnan(answer):
            self._last_error = "a segment could not be judged"
            return "item"
        self._last_error = f"a judge gave {answer!r}, which is no probability"
        return "invalid"


async def _in_thread(function: Callable[[list[JudgeItem]], list[float]], batch: list[JudgeItem]) -> list[float]:
    """`function(batch)` in a daemon thread: one that hangs holds up neither the next call nor the process's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[float]] = loop.create_future()

    def finish(result: list[float] | None, error: BaseException | None) -> None:
        if future.done():  # cancelled at its deadline
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result([] if result is None else list(result))

    def work() -> None:
        result, error = None, None
        try:
            result = function(batch)
        except Exception as raised:  # noqa: BLE001  (handed to the caller, which counts it)
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=work, name="judge-call", daemon=True).start()
    return await future
