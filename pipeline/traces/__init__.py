"""Traces: sampled answers in token ids, their thinking part, its segments, and the necessary prefix."""

from pipeline.traces.marks import Marks
from pipeline.traces.offsets import Offsets, token_offsets
from pipeline.traces.segment import prefix_length, segment
from pipeline.traces.thinking import (
    Thinking,
    answer_text,
    closes_thinking,
    segment_texts,
    split_thinking,
    without_tags,
)
from pipeline.traces.trace import Group, Stop, Trace, VersionSpan

__all__ = [
    "Group",
    "Marks",
    "Offsets",
    "Stop",
    "Thinking",
    "Trace",
    "VersionSpan",
    "answer_text",
    "closes_thinking",
    "prefix_length",
    "segment",
    "segment_texts",
    "split_thinking",
    "token_offsets",
    "without_tags",
]
