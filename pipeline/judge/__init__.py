"""Judges: who finds the segment in which the answer is first reached."""

from pipeline.judge.actor import JudgeActor
from pipeline.judge.base import JUDGES, JudgeItem, SegmentJudge, Unjudged, build_judge, register_judge
from pipeline.judge.exact import ExactJudge, stated_answer
from pipeline.judge.learned import LearnedJudge
from pipeline.judge.watch import JudgeFailure
from pipeline.judge.waves import PrefixRequest, PrefixResult

register_judge("exact", lambda config: ExactJudge())
register_judge("learned", LearnedJudge)

__all__ = [
    "JUDGES",
    "ExactJudge",
    "JudgeActor",
    "JudgeFailure",
    "JudgeItem",
    "LearnedJudge",
    "PrefixRequest",
    "PrefixResult",
    "SegmentJudge",
    "Unjudged",
    "build_judge",
    "register_judge",
    "stated_answer",
]
