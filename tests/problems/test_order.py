"""Orders and seeds belong to the run, not to a process."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import ROOT
from pipeline.problems import epoch_order, sample_seed


@given(st.integers(0, 200), st.integers(0, 2**40), st.integers(0, 50))
def test_each_problem_once_an_epoch(n, seed, epoch):
    assert sorted(epoch_order(n, seed, epoch)) == list(range(n))
    assert epoch_order(n, seed, epoch) == epoch_order(n, seed, epoch)


def test_epochs_and_seeds_differ():
    orders = {tuple(epoch_order(50, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@given(st.text(), st.integers(0, 10**6), st.integers())
def test_seeds_fit_31_bits(problem_id, epoch, run_seed):
    assert 0 <= sample_seed(problem_id, epoch, run_seed) < 2**31


def test_every_part_counts():
    seeds = {sample_seed(p, e, s) for p in ("a", "b", "é") for e in range(3) for s in range(3)}
    assert len(seeds) == 27


def test_same_in_another_process():
    code = "from pipeline.problems import *; print(sample_seed('p-1', 2, 7), epoch_order(6, 1, 0))"
    env = {"PYTHONHASHSEED": "123", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{sample_seed('p-1', 2, 7)} {epoch_order(6, 1, 0)}\n"
