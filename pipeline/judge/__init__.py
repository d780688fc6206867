"""Judges: who finds the segment in which the answer is first reached."""

from pipeline.judge.actor import JudgeActor
from pipeline.judge.base import JUDGES, JudgeItem, SegmentJudge, build_judge, register_judge
from pipeline.judge.exact import ExactJudge, stated_answer
from pipeline.judge.waves import JudgeFailure, PrefixRequest, PrefixResult

register_judge("exact", lambda config: ExactJudge())

__all__ = [
    "JUDGES",
    "ExactJudge",
    "JudgeActor",
    "JudgeFailure",
    "JudgeItem",
    "PrefixRequest",
    "PrefixResult",
    "SegmentJudge",
    "build_judge",
    "register_judge",
    "stated_answer",
]
