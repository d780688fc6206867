"""vLLM's load generator as a process of its own, and the requests it sends."""

import json
import math
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs._bench_requests import Shape
from jobs._bench_rows import Row, waves
from jobs._bench_serve_figures import Repeat, read
from jobs._launches import base_env
from jobs._services import ServiceError, last_lines
from pipeline.engine.options import EngineOptions, engine_env
from serve.bench_client import DONE, READY

ROUTE = "/v1/chat/completions"
START_S, END_S = 240.0, 10.0


@dataclass(frozen=True)
class Sending:
    """Where requests go and how: `size` of a group, `rate` in requests a second where nobody waits (inf: all at
    once), `extra` in every body."""

    url: str
    model_id: str
    tokenizer: str
    size: int
    rate: float
    temperature: float
    seed: int
    extra: Mapping[str, Any] = field(default_factory=dict)


def arguments(row: Row, sending: Sending, count: int, prompts: Path, result: Path) -> list[str]:
    """Of one `vllm bench serve`: `count` requests of the file `prompts`, in its order, each written to its end."""
    rate = sending.rate if row.clients == "open" else math.inf
    found = ["--backend", "openai-chat", "--endpoint", ROUTE, "--base-url", sending.url, "--model", sending.model_id]
    found += ["--tokenizer", sending.tokenizer, "--dataset-name", "custom", "--dataset-path", str(prompts)]
    found += ["--custom-output-len", "-1", "--skip-chat-template", "--disable-shuffle", "--ignore-eos"]
    found += ["--num-prompts", str(count), "--request-rate", str(rate), "--seed", str(sending.seed)]
    found += ["--temperature", f"{sending.temperature:g}", "--save-result", "--save-detailed", "--disable-tqdm"]
    found += ["--result-dir", str(result.parent), "--result-filename", result.name]
    found += ["--max-concurrency", "1"] if row.clients == "one" else []
    return found + (["--extra-body", json.dumps(dict(sending.extra))] if sending.extra else [])


class LoadClient:
    """The generator's process; starts at the first measurement, and anew after an error. `log` has what it printed."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        self.log = folder / "load.log"
        self.env = base_env() | engine_env(options)
        self.process: subprocess.Popen[str] | None = None
        self.ready = False

    def repeat(
        self, row: Row, sending: Sending, shapes: Sequence[Shape], files: Path, deadline_s: float
    ) -> tuple[Repeat, list[Path]]:
        """Sends `shapes` as the row's clients do; the repeat, and its raw results `<files>-<group>.json`. Faulty where
        they are not what was asked for; ServiceError when the generator ends or takes longer than `deadline_s`."""
        raw, deadline = [], time.monotonic() + deadline_s
        for number, part in enumerate(waves(row, shapes, sending.size)):
            prompts, result = (files.with_name(f"{files.name}-{number}.{kind}") for kind in ("jsonl", "json"))
            lines = [json.dumps({"prompt": shape.prompt, "output_tokens": shape.max_tokens}) for shape in part]
            prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
            result.unlink(missing_ok=True)
            self._ask(arguments(row, sending, len(part), prompts, result), deadline)
            raw.append(result)
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in raw]
        return read(parts, [shape.max_tokens for shape in shapes]), raw

    def start(self) -> "subprocess.Popen[str]":
        """The process, started where none runs, without waiting for it: it imports vLLM for some seconds."""
        if self.process is None:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "serve.bench_client"],
                    env=self.env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            self.ready = False
        return self.process

    def _ask(self, argv: Sequence[str], deadline: float) -> None:
        process = self.start()
        if not self.ready:
            self._await(process, READY, time.monotonic() + START_S)
            self.ready = True
        try:
            process.stdin.write(json.dumps(list(argv)) + "\n")
            process.stdin.flush()
        except OSError:  # it has ended; what it said last is told below
            deadline = time.monotonic()
        self._await(process, DONE, deadline)

    def _await(self, process: "subprocess.Popen[str]", word: str, deadline: float) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            in_time = waiting.select(max(0.0, deadline - time.monotonic()))
        if in_time and process.stdout.readline().strip() == word:
            return
        self.close()
        what = "ended" if in_time else "was not done in time"
        raise ServiceError(f"vLLM's load generator {what}.\n{last_lines(str(self.log))}")

    def close(self) -> None:
        """Ends it; forces it where it does not end by itself."""
        process, self.process = self.process, None
        if process is None:
            return
        try:
            process.communicate(timeout=END_S)  # closes its input, which ends it
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
