"""Which problem comes when, and with which seed: functions of the run's seed alone, never of a worker."""

import hashlib
import json


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def epoch_order(n: int, seed: int, epoch: int) -> list[int]:
    """A permutation of 0..n-1: the order in which epoch `epoch` (from 0) issues the problems.

    Sorted by digest, so it is the same in every process and Python version.
    """
    return sorted(range(n), key=lambda index: _digest("order", seed, epoch, index))


def sample_seed(problem_id: str, epoch: int, run_seed: int) -> int:
    """The sampling seed of one issue of a problem, in [0, 2**31); the engine derives one for each sample from it."""
    return int.from_bytes(_digest("sample", run_seed, epoch, problem_id)[:4], "big") >> 1
