"""Trains one arm of a comparison in a process of its own, which ends with this one's interrupt."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline.config import ROOT, RunConfig, to_yaml

INTERRUPT_GRACE_S = 60  # a training checkpoints nothing on the way out, but ends its actors
STEP = re.compile(r"step \d+/\d+ ")
LOG, CONFIG = "train.log", "config.yaml"


class ArmFailed(RuntimeError):
    """One arm's training ended with an error; the text is its last word."""


def train_arm(cfg: RunConfig, folder: Path, ray_address: str, on_step: Callable[[str], object]) -> None:
    """Runs `jobs.train` with `cfg` to its end; config and log are kept in `folder`, `on_step` gets each step's line.

    ArmFailed where it exits with anything but 0. On an interrupt the child is interrupted first, then killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(to_yaml(cfg))
    command = [sys.executable, "-W", "ignore", "-m", "jobs.train", "--config", str(folder / CONFIG)]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"RAY_ADDRESS": ray_address, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches this process, which hands it on
    )
    try:
        last = _follow(child, folder / LOG, on_step)
        if child.wait() != 0:
            raise ArmFailed(f"{last or 'no word'} (exit {child.returncode}; log: {folder / LOG})")
    finally:
        _end(child)


def _follow(child: subprocess.Popen[str], log: Path, on_step: Callable[[str], object]) -> str:
    """Copies the child's lines to `log`; returns the last one."""
    last = ""
    with log.open("a", encoding="utf-8") as kept:
        for line in child.stdout or ():
            kept.write(line)
            kept.flush()
            last = line.strip() or last
            if STEP.match(line):
                on_step(line.strip())
    return last


def _end(child: subprocess.Popen[str]) -> None:
    """Interrupts the child if it still runs, and kills its session if it does not end in time."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=INTERRUPT_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
