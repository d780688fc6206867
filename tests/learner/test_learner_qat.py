"""Training for rounded weights under DeepSpeed: ZeRO 0, 1 and 2 agree, and what is written is what was trained."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quantization.rounded_folders import make_base

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_each_stage_learns_alike_and_writes_what_it_computes(tmp_path):
    base = make_base(tmp_path / "base")
    script = str(Path(__file__).with_name("qat_process.py"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    argv = [sys.executable, "-W", "ignore", script, str(base), str(tmp_path)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    stages = json.loads(done.stdout.splitlines()[-1])
    assert [stage["same"] for stage in stages.values()] == [True, True, True]
    first = stages["0"]["losses"]
    assert first[-1] < 0.8 * first[0]
    for stage in ("1", "2"):
        assert stages[stage]["losses"] == pytest.approx(first, rel=1e-3)
