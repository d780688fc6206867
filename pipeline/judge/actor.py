"""The judge as an actor: finds prefixes of many traces in waves.

Wave k asks for the k-th segment of every trace that has no right one yet, so a trace costs no more calls than it has
segments up to its first right one, and the judge sees large batches. A segment that could not be judged counts as "no":
that punishes too little, never too much. Failures are counted, and too many end the run; so do, or are warned of,
verdicts that make no sense (see watch.py). A segment that is too long for the judge says nothing of the judge: it is
counted by itself and is no failure.
"""

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import TypeVar

from pipeline.config import UserError
from pipeline.config.schema import Grading as GradingConfig
from pipeline.config.schema import Judge as JudgeConfig
from pipeline.grading import configure
from pipeline.judge.base import JudgeItem, SegmentJudge, Unjudged, build_judge
from pipeline.judge.watch import FailureWatch, JudgeFailure, SenseWatch, control_questions
from pipeline.judge.waves import PrefixRequest, PrefixResult, Search, VerdictCache

BATCH = 256  # items a call; the deadline is for one call
COUNTED = ("requests", "found", "not_found", "several", "first_yes", "waves", "calls", "judged", "cache_hits")
WATCHED = ("failures", "overlong", "controls", "false_yes", "absurd")
REASONS = ("deadline", "exception", "item", "invalid")

T = TypeVar("T")
logger = logging.getLogger(__name__)


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
        self._cache = VerdictCache()
        self._watch, self._sense = FailureWatch(config.max_failure_rate), SenseWatch(config)
        self._counts: Counter[str] = Counter()
        self._last_error = ""
        self._absurd: dict[str, str] = {}
        self._warnings: list[str] = []

    async def describe(self) -> dict[str, str]:
        """The judge's name, and what it has loaded, if it loads anything (it does so now; UserError if it cannot)."""
        describe = getattr(self._judge, "describe", dict)
        return {"name": self._config.name, **await _in_thread(describe)}

    async def find_prefixes(self, requests: Sequence[PrefixRequest]) -> list[PrefixResult]:
        """The necessary prefix of each trace, in the order asked. Raises JudgeFailure above the failure rate, and where
        verdicts are absurd and judge.on_absurd is stop."""
        searches, controls = [Search(request) for request in requests], control_questions(requests)
        self._counts["requests"] += len(searches)
        verdicts: dict[JudgeItem, bool] = {}
        while waiting := [search for search in searches if search.open]:
            self._counts["waves"] += 1
            items = [search.next_item() for search in waiting]
            verdicts |= await self._verdicts([*items, *(control for control in controls if control not in verdicts)])
            for search, item in zip(waiting, items, strict=True):
                search.verdicts.append(verdicts[item])
        results = [search.result() for search in searches]
        self._note(results, [verdicts[item] for item in controls])
        return results

    async def counters(self) -> dict[str, int]:
        """Counts since the start: requests, found, not_found; of requests with several segments (several) those whose
        first is right (first_yes); waves, calls, judged, cache_hits; failures, and failures_<reason>: deadline,
        exception (the call), item, invalid (no probability); overlong; control questions (controls) and those judged
        right (false_yes); calls that found the judge absurd."""
        names = (*COUNTED, *WATCHED, *(f"failures_{reason}" for reason in REASONS))
        return {name: self._counts[name] for name in names}

    async def warnings(self) -> list[str]:
        """What was found absurd since the last call and, as judge.on_absurd is warn, did not end the run."""
        told, self._warnings = self._warnings, []
        return told

    def _note(self, results: Sequence[PrefixResult], controls: Sequence[bool]) -> None:
        found = sum(result.yes_index is not None for result in results)
        several = [result for result in results if result.segments_total > 1]
        self._counts.update(
            found=found,
            not_found=len(results) - found,
            several=len(several),
            first_yes=sum(result.yes_index == 0 for result in several),
            controls=len(controls),
            false_yes=sum(controls),
        )
        self._sense.add(results, controls)
        absurd = self._sense.complaints()
        if absurd and self._config.on_absurd == "stop":
            raise JudgeFailure("; ".join(absurd.values()))
        self._counts["absurd"] += bool(absurd)
        new = [text for option, text in absurd.items() if option not in self._absurd]
        for text in new:
            logger.warning("%s", text)
        self._warnings += new
        self._absurd = absurd

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
        """One call. Failed and overlong items are "no" and are not remembered."""
        answers = await self._probabilities(batch)
        self._counts.update(calls=1, judged=len(batch))
        failed = [isinstance(answer, str) and answer != Unjudged.OVERLONG for answer in answers]
        for answer, no_verdict in zip(answers, failed, strict=True):
            if no_verdict:
                self._counts.update(["failures", f"failures_{answer}"])
        self._counts["overlong"] += answers.count(Unjudged.OVERLONG)
        verdicts = {}
        for item, answer in zip(batch, answers, strict=True):
            verdicts[item] = not isinstance(answer, str) and answer >= self._config.threshold
            if not isinstance(answer, str):
                self._cache.put(item, verdicts[item])
        self._watch.add(failed, self._last_error)
        return verdicts

    async def _probabilities(self, batch: list[JudgeItem]) -> list[float | str]:
        """A probability for each item, or why there is none. UserError passes: it is not the judge that fails."""
        try:
            ask = partial(self._judge.probabilities, batch)
            answers = list(await asyncio.wait_for(_in_thread(ask), self._config.deadline_s))
        except UserError:
            raise
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

    def _checked(self, answer: float | Unjudged) -> float | str:
        if isinstance(answer, Unjudged):
            return answer
        number = isinstance(answer, Real)
        if number and 0 <= answer <= 1:
            return float(answer)
        if number and math.isnan(answer):
            self._last_error = "a segment could not be judged"
            return "item"
        self._last_error = f"a judge gave {answer!r}, which is no probability"
        return "invalid"


async def _in_thread(function: Callable[[], T]) -> T:
    """`function()` in a daemon thread: one that hangs holds up neither the next call nor the process's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(act: Callable[[], None]) -> None:
        if not future.done():  # else cancelled at its deadline
            act()

    def work() -> None:
        try:
            act = partial(future.set_result, function())
        except Exception as raised:  # noqa: BLE001  (handed to the caller, which counts it)
            act = partial(future.set_exception, raised)
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, act)

    threading.Thread(target=work, name="judge-call", daemon=True).start()
    return await future
