"""Benchmarks: what they ask, in the paper's protocol, from the hub or from files."""

from pipeline.evaluation.suites.catalogue import SUITES
from pipeline.evaluation.suites.loading import check_suite_file, find_suite, load_suite, spread, suite_digest
from pipeline.evaluation.suites.suite import Kind, Protocol, Suite

__all__ = [
    "SUITES",
    "Kind",
    "Protocol",
    "Suite",
    "check_suite_file",
    "find_suite",
    "load_suite",
    "spread",
    "suite_digest",
]
