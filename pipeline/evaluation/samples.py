"""The samples of an evaluation, kept one a line, so that an interrupted one goes on where it stopped.

The first line says what was measured (weights, problems, sampling, judge). A file with another first line is never
added to. Lines are appended and flushed to disk together; a process that dies while it writes leaves at most a torn
last line, which is counted and cut off.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import UserError
from pipeline.evaluation.scoring import ScoredTrace
from pipeline.traces import Stop, Trace, VersionSpan

FORMAT = 1
Key = tuple[str, int]  # problem id, sample
Identity = Mapping[str, Any]


class SampleLedger:
    """The kept samples by (problem id, sample). `torn` counts last lines that were cut off, `marks` the kept samples by
    the mark of the weights that made them (of endpoints; None for an engine of one's own)."""

    def __init__(self, path: Path) -> None:
        """Reads what is there; UserError where it is damaged."""
        self.path = path
        self.identity: Identity | None = None
        self.samples: dict[Key, ScoredTrace] = {}
        self.marks: Counter[str | None] = Counter()
        self.torn = 0
        if path.exists():
            self._read()

    def begin(self, identity: Identity) -> None:
        """Writes the first line, unless it is there; UserError where it is another one."""
        plain = json.loads(json.dumps(identity))
        if self.identity is None:
            self._append([{"format": FORMAT, "identity": plain}])
            self.identity = plain
        elif odd := first_difference(self.identity, plain):
            name, was, now = odd
            raise UserError(
                f"{self.path} holds samples of another evaluation: its {name} is {was}, now it is {now}; choose "
                "another run.name, or set things back as they were"
            )

    def add(self, scored: Sequence[ScoredTrace], mark: str | None = None) -> None:
        """Keeps samples; they are on disk when this returns. Those that are there already stay as they are."""
        if self.identity is None:
            raise RuntimeError(f"{self.path} has no first line yet; begin() writes it")
        new = [s for s in scored if key_of(s) not in self.samples]
        self._append([to_line(s) | ({"mark": mark} if mark else {}) for s in new])
        for sample in new:
            self._take(sample, mark)

    def _take(self, sample: ScoredTrace, mark: str | None) -> None:
        self.samples[key_of(sample)] = sample
        self.marks[mark] += 1

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if not lines:
            return
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        with self.path.open("ab") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            self.torn += 1
            os.truncate(self.path, end)
        lines = data[:end].decode("utf-8", "surrogatepass").split("\n")[:-1]
        for number, line in enumerate(lines, start=1):
            try:
                found = json.loads(line)
                self._first(found) if number == 1 else self._take(from_line(found), found.get("mark"))
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"{self.path} line {number} is damaged ({type(error).__name__}: {error}); "
                    "mend or remove the file, or choose another run.name"
                ) from None

    def _first(self, line: Mapping[str, Any]) -> None:
        if line["format"] != FORMAT:
            raise ValueError(f"format {line['format']}, this version reads {FORMAT}")
        self.identity = line["identity"]


def key_of(sample: ScoredTrace) -> Key:
    """(problem id, sample)."""
    return sample.trace.problem_id, sample.trace.sample


def to_line(sample: ScoredTrace) -> dict[str, Any]:
    """One kept sample as plain data; log-probs are not kept."""
    trace = sample.trace
    return {
        "problem": trace.problem_id,
        "sample": trace.sample,
        "correct": sample.correct,
        "tokens": sample.length,
        "think_tokens": sample.think_length,
        "answer_start": sample.answer_start,
        "ends_seen": sample.ends_seen,
        "prefix_tokens": sample.prefix_length,
        "segments": sample.segments,
        "stop": trace.stop.value,
        "versions": [(span.version, span.start, span.end) for span in trace.versions],
        "text": trace.text,
        "prompt_ids": trace.prompt_ids,
        "token_ids": trace.token_ids,
    }


def from_line(line: Mapping[str, Any]) -> ScoredTrace:
    """Read back `to_line`; log-probs are zeros."""
    ids = tuple(line["token_ids"])
    trace = Trace(
        problem_id=line["problem"],
        sample=line["sample"],
        prompt_ids=tuple(line["prompt_ids"]),
        token_ids=ids,
        logprobs=(0.0,) * len(ids),
        versions=tuple(VersionSpan(*span) for span in line["versions"]),
        stop=Stop(line["stop"]),
        text=line["text"],
    )
    return ScoredTrace(
        trace=trace,
        segments=tuple((start, end) for start, end in line["segments"]),
        think_length=line["think_tokens"],
        answer_start=line["answer_start"],
        ends_seen=line["ends_seen"],
        correct=line["correct"],
        prefix_length=line["prefix_tokens"],
    )


def first_difference(kept: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first place (dotted) where two plain values differ, with both values; None where they are equal."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in sorted(kept.keys() | now.keys()):
            if odd := first_difference(kept.get(key), now.get(key), f"{name}.{key}".lstrip(".")):
                return odd
        return None
    return None if kept == now else (name, kept, now)
