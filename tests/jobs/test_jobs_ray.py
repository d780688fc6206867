"""A command's own Ray: on loopback, and without taking the command's signals."""

import subprocess
import sys

import pytest

from pipeline.config import ROOT

COMMAND = """
import os, signal, time
from jobs._ray import cluster

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, interrupt)
try:
    with cluster("signals"):
        import ray
        print("address", ray.get_runtime_context().gcs_address)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
except KeyboardInterrupt:
    print("cleaned up", ray.is_initialized())
"""


@pytest.mark.slow
def test_ray_stays_on_loopback_and_leaves_sigterm_to_the_command(monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    address, cleaned = done.stdout.splitlines()
    assert address.startswith("address 127.0.0.1:") and cleaned == "cleaned up False"
