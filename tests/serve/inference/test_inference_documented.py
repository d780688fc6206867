"""The page's example runs as it stands, in a process of its own."""

import os
import re
import subprocess
import sys

import pytest

from pipeline.config import ROOT

PAGE = ROOT / "docs/inference_optimizer.md"


def example():
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return block


def test_every_lever_has_its_row():
    from serve.inference.request import Levers

    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert all(any(f"`{name}" in row for row in rows) for name in Levers.__annotations__)


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    script = tmp_path / "example.py"
    script.write_text(example(), encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    *reply, last = done.stdout.strip().splitlines()
    assert "18" in "".join(reply) and "'thinking_budget': 200" in reply[-1]
    assert re.fullmatch(r"8 replies, at most [2-8] at a time", last)
    assert "Traceback" not in done.stderr
