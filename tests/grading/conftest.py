"""One pool for the whole session, ended with it."""

import pytest

from pipeline import grading
from pipeline.grading.verdict import Counters


@pytest.fixture(scope="session", autouse=True)
def _pool():
    grading.configure(workers=1, deadline_s=20)
    yield
    grading.close()


@pytest.fixture(autouse=True)
def _fresh_counters(monkeypatch):
    monkeypatch.setattr("pipeline.grading.grader._counters", Counters())
