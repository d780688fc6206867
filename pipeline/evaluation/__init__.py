"""Evaluation: scoring shared with training, summaries, and the endpoint as a source of traces."""

from pipeline.evaluation.endpoint import EndpointClient, Replies, to_trace, version_of
from pipeline.evaluation.estimators import aes, pass_at_k
from pipeline.evaluation.scoring import ScoredTrace, dissect, grade_traces, score_traces, with_prefixes
from pipeline.evaluation.summary import Summary, nrp_share, ratio, summarise

__all__ = [
    "EndpointClient",
    "Replies",
    "ScoredTrace",
    "Summary",
    "aes",
    "dissect",
    "grade_traces",
    "nrp_share",
    "pass_at_k",
    "ratio",
    "score_traces",
    "summarise",
    "to_trace",
    "version_of",
    "with_prefixes",
]
