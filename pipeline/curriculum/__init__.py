"""Curriculum: which groups make a batch, and how many easy ones (kappa)."""

from pipeline.curriculum.groups import GroupKind, classify
from pipeline.curriculum.kappa import Rule, kappa_rule
from pipeline.curriculum.sampling import BatchFiller, BatchNotFilled, DropReason, Filled, easy_quota, easy_target

__all__ = [
    "BatchFiller",
    "BatchNotFilled",
    "DropReason",
    "Filled",
    "GroupKind",
    "Rule",
    "classify",
    "easy_quota",
    "easy_target",
    "kappa_rule",
]
