"""Runs `ray_train_checks.py` in a process of its own: no Ray of an earlier test may linger in it."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_train_function_under_ray_train():
    checks = Path(__file__).with_name("ray_train_checks.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks)],
        cwd=checks.parents[2],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
