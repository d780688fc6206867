"""Serving levers on one GPU, in at most `--minutes`: PREPARED, NOT YET RUN ON A GPU. Nothing is fetched from anywhere.

    python infra/gpu/bench_serve.py --out OUT --minutes 12      (from the repository's root; --plan only prints)

Needs vLLM for CUDA. Writes OUT/results.json anew after every case, so that what was measured stays when time runs out.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import httpx  # noqa: E402
from gpu_cases import SHAPES, Case, cases, in_time, make_model  # noqa: E402

from jobs._bench_bare import bare_launch, started  # noqa: E402
from jobs._bench_client import LoadClient, Sending  # noqa: E402
from jobs._bench_environment import environment  # noqa: E402
from jobs._bench_requests import Shape  # noqa: E402
from jobs._bench_rows import ROWS, Row  # noqa: E402
from jobs._bench_serve_figures import Slo, row_figures  # noqa: E402
from jobs._services import Launch, ServiceError  # noqa: E402
from pipeline.config import UserError, schema  # noqa: E402
from pipeline.engine.options import EngineOptions  # noqa: E402

NAME = "dummy"
START_S, REPEAT_S = 150.0, 240.0
STEPS = (1, 16, 64, 128)  # requests at a time
LONG, SHORT = 4000, 300  # words of a prompt


def launch_of(case: Case, folder: Path, device: str = "cuda") -> Launch:
    """The server of a case, as the dry check parses it and the measurement starts it."""
    options = EngineOptions.from_config(schema.Engine(device=device), device)
    launch = bare_launch(str(folder / case.shape), NAME, case.kwargs, options)
    return replace(launch, env=launch.env | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"})


def shapes(count: int, words: int, tokens: Sequence[int]) -> list[Shape]:
    """Requests of as many words, all of them different from the first word on."""

    def text(at: int) -> str:
        return " ".join(f"t{2 + (7919 * (at + 1) + 104729 * word) % 128_000}" for word in range(words))

    return [Shape(at, text(at), tokens[at % len(tokens)], True, at) for at in range(count)]


class Measurement:
    """The load generator, the folder of raw results, and what a case's requests are."""

    def __init__(self, out: Path, models: Path) -> None:
        self.out, self.models = out, models
        self.client = LoadClient(out, EngineOptions.from_config(schema.Engine(device="cuda"), "cuda"))

    def load(self, case: Case, url: str, row: Row, label: str, sent: Sequence[Shape], size: int) -> dict[str, Any]:
        """One measurement; its figures without intervals over repeats, since there is one."""
        sending = Sending(url, NAME, str(self.models / case.shape), size, math.inf, 0.0, 0)
        found, _ = self.client.repeat(row, sending, sent, self.out / f"{case.name}-{label}", REPEAT_S)
        return row_figures([found], Slo(1000, 50))

    def rows(self, case: Case, url: str) -> dict[str, Any]:
        """One client at a time, groups of 64, and all at once, on the same server."""
        self.load(case, url, ROWS["B"], "warm", shapes(16, SHORT, (32,)), 16)
        few, many = shapes(8, SHORT, (64, 256)), shapes(256, SHORT, (32, 128, 512))
        return {
            "A": self.load(case, url, ROWS["A"], "A", few, 1),
            "A'": self.load(case, url, ROWS["A'"], "groups", many, 64),
            "B": self.load(case, url, ROWS["B"], "B", many, 64),
        }

    def row(self, case: Case, url: str) -> dict[str, Any]:
        self.load(case, url, ROWS["B"], "warm", shapes(16, SHORT, (32,)), 16)
        return {"B": self.load(case, url, ROWS["B"], "B", shapes(256, SHORT, (32, 128, 512)), 64)}

    def tiers(self, case: Case, url: str) -> dict[str, Any]:
        """The first token of long prompts: computed, then from the GPU's cache, then from host memory."""
        sent = shapes(24, LONG, (2,))
        found = {}
        for label in ("computed", "gpu", "dram"):
            if label == "dram":
                httpx.post(f"{url}/reset_prefix_cache", timeout=60).raise_for_status()
            found[label] = self.load(case, url, ROWS["A"], label, sent, 1)["ttft_ms"]
        return found

    def steps(self, case: Case, url: str) -> dict[str, Any]:
        """Throughput by how many requests there are at a time."""
        self.load(case, url, ROWS["B"], "warm", shapes(16, SHORT, (32,)), 16)
        found = {}
        for size in STEPS:
            sent = shapes(max(4, size), SHORT, (128,))
            row = ROWS["A"] if size == 1 else ROWS["A'"]
            found[str(size)] = self.load(case, url, row, f"at-{size}", sent, size)
        return found

    def start(self, case: Case, url: str) -> dict[str, Any]:
        """Only that it starts."""
        return {}

    def measure(self, case: Case) -> dict[str, Any]:
        """The case's entry; why it did not run where it broke."""
        does: dict[str, Callable[[Case, str], dict[str, Any]]] = {
            "start": self.start, "rows A A' B": self.rows, "row": self.row, "tiers": self.tiers, "steps": self.steps,
        }  # fmt: skip
        folder, launch, began = self.out / case.name, launch_of(case, self.models), time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        told = {"case": case.name, "shape": case.shape, "engine": dict(case.kwargs), **case.labels}
        try:
            with started(launch, folder, START_S):
                url = launch.urls["vllm"]
                told |= {"cache": cache_line(url)}
                entry = {"ran": True, "figures": does[case.does](case, url)}
        except (UserError, ServiceError, ValueError, OSError, httpx.HTTPError) as error:
            entry = {"ran": False, "why_not": str(error)}
        return told | entry | {"seconds": round(time.monotonic() - began, 1)}


def cache_line(url: str) -> str:
    """What the server tells of its KV cache: block size and number of blocks among it."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return next((line for line in lines if line.startswith("vllm:cache_config_info{")), "")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what fits into the time; 1 when nothing ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--plan", action="store_true", help="print the servers' commands and start nothing")
    args = parser.parse_args(argv)
    ends, models = time.monotonic() + 60 * args.minutes, args.out / "models"
    chosen = in_time(cases(models), 60 * args.minutes)
    if args.plan:
        for case in chosen:
            print(f"{case.name} ({case.seconds} s): {' '.join(launch_of(case, models).command[1:])}")
        return 0
    for name, shape in SHAPES.items():
        make_model(models / name, shape)
    found = _all(Measurement(args.out, models), chosen, ends, args.out / "results.json")
    return 0 if any(entry["ran"] for entry in found) else 1


def _all(measurement: Measurement, chosen: Sequence[Case], ends: float, file: Path) -> list[Mapping[str, Any]]:
    """The starts beside each other, then one case after the other while their estimates fit."""
    starts = [case for case in chosen if case.does == "start"]
    found: list[Mapping[str, Any]] = []
    before = environment()

    def keep(entry: Mapping[str, Any]) -> None:
        found.append(entry)
        print(f"{entry['case']}: {'ran' if entry['ran'] else entry['why_not'].splitlines()[0]}", flush=True)
        file.write_text(json.dumps({"environment": before, "cases": found}, indent=1))

    try:
        with ThreadPoolExecutor(max(1, len(starts))) as pool:
            for entry in pool.map(measurement.measure, starts):
                keep(entry)
        for case in chosen[len(starts) :]:
            if time.monotonic() + case.seconds > ends:
                break
            keep(measurement.measure(case))
    finally:
        measurement.client.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
