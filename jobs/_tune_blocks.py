"""`jobs.tune block-size`: a stream of requests through vLLM's own block manager, once for each size a backend takes."""

import argparse
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jobs._cli import whole_number
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError, resolve_path
from pipeline.engine.blocks.rules import RULES, sizes_for
from pipeline.engine.blocks.trace import TracedRequest, read_trace, trace_lines
from pipeline.engine.memory import Pool, kv_plan
from serve.kv_budget import device_of, pool_of, read_model_config
from serve.levers import budget_tokens

if TYPE_CHECKING:
    from pipeline.engine.blocks.choice import Choice
    from pipeline.engine.blocks.replay import Replayed, Setting

SUMMARY = "tokens a block of the KV cache holds"
REPORT = "block_size.json"
GPU_STEP_TOKENS = 8192  # of a server's step on a large GPU, where batching.max_num_batched_tokens leaves it to vLLM
TOLERANCE = 0.02


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this kind of tuning."""
    parser.add_argument("--trace", metavar="FILE", help="requests as JSON lines (pipeline/engine/blocks/trace.py)")
    parser.add_argument("--samples", metavar="FILE", help="instead: the samples.jsonl of an evaluation")
    parser.add_argument("--write-trace", metavar="FILE", help="keep what --samples holds as a trace")
    parser.add_argument("--backend", choices=list(RULES), help="of attention (default: by device and model)")
    parser.add_argument("--sizes", metavar="N,N", help="the sizes to compare (default: all usual ones that it takes)")
    tokens = whole_number("--capacity-tokens")
    parser.add_argument("--capacity-tokens", metavar="N", type=tokens, help="of the cache (default: by its bytes)")
    parser.add_argument(
        "--tolerance", metavar="SHARE", type=float, default=TOLERANCE, help="that a larger size may cost (default 0.02)"
    )


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints the table, the size to take and the config patch; writes them to the run's folder as JSON."""
    backend, sizes, requests = _asked(cfg, args)
    setting, blocks = _setting(cfg), _blocks(cfg, args, sizes)
    if args.write_trace:
        pairs = ((request.prompt, request.output) for request in requests)
        Path(args.write_trace).write_text("".join(trace_lines(pairs)), encoding="utf-8")
    cfg = named(cfg, "tune-block-size")
    folder = run_folder(cfg)
    with held(folder):
        rows = _replayed(requests, blocks, setting)
        from pipeline.engine.blocks.choice import choose

        choice = choose(rows, args.tolerance)
        report = _report(args, backend, setting, rows, choice, len(requests))
        (folder / REPORT).write_text(json.dumps(report, indent=2), encoding="utf-8")
    print(_text(cfg, backend, rows, choice, len(requests)))
    print(f"written to {folder / REPORT}")
    return 0


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """What would be compared."""
    backend, sizes, requests = _asked(cfg, args)
    blocks = _blocks(cfg, args, sizes)
    pools = ", ".join(f"{blocks[size]} of {size}" for size in sizes)
    return f"{len(requests)} requests through vLLM's block manager ({backend}), blocks: {pools}"


def _asked(cfg: RunConfig, args: argparse.Namespace) -> tuple[str, tuple[int, ...], list[TracedRequest]]:
    """Backend, sizes and requests. UserError for what cannot be tried."""
    if bool(args.trace) == bool(args.samples):
        raise UserError("give either --trace FILE or --samples FILE")
    if args.write_trace and not args.samples:
        raise UserError("--write-trace keeps what --samples holds; a trace is one already")
    if not 0 <= args.tolerance <= 1:
        raise UserError(f"--tolerance is {args.tolerance:g}; it must be from 0 to 1")
    backend = args.backend or _usual_backend(cfg)
    sizes = sizes_for(backend, _numbers(args.sizes))
    requests = read_trace(resolve_path(args.trace)) if args.trace else _from_samples(resolve_path(args.samples))
    for number, request in enumerate(requests, start=1):
        if request.tokens > cfg.engine.max_model_len:
            raise UserError(
                f"request {number} of the trace has {request.tokens} tokens, more than engine.max_model_len "
                f"({cfg.engine.max_model_len}); raise that, or leave the request out"
            )
    return backend, sizes, requests


def _usual_backend(cfg: RunConfig) -> str:
    config = resolve_path(cfg.model.path) / "config.json"
    mla = config.is_file() and bool(read_model_config(config).get("kv_lora_rank"))
    if device_of(cfg) == "cpu":
        return "cpu_mla" if mla else "cpu"
    return "flashmla" if mla else "flash_attn"


def _numbers(text: str | None) -> tuple[int, ...]:
    read = whole_number("--sizes", most=1 << 16)
    return tuple(read(part.strip()) for part in text.split(",")) if text else ()


def _from_samples(path: Path) -> list[TracedRequest]:
    from pipeline.evaluation.samples import SampleLedger

    if not path.is_file():
        raise UserError(f"--samples {path} is not there; give the samples.jsonl of an evaluation's folder")
    traces = [sample.trace for sample in SampleLedger(path).samples.values()]
    found = [TracedRequest(t.prompt_ids, t.token_ids) for t in traces if t.prompt_ids and t.token_ids]
    if not found:
        raise UserError(f"--samples {path} holds no reply; give the samples of an evaluation that has some")
    return found


def _setting(cfg: RunConfig) -> "Setting":
    from pipeline.engine.blocks.replay import Setting

    device = device_of(cfg)
    return Setting(
        max_running=min(cfg.engine.max_num_seqs, cfg.batching.max_num_active_seqs or cfg.engine.max_num_seqs),
        step_tokens=budget_tokens(cfg, device) or GPU_STEP_TOKENS,
        chunked=device != "cpu",
        prefix_cache=cfg.kv.prefix_cache,
        prefix_hash=cfg.kv.prefix_hash,
    )


def _blocks(cfg: RunConfig, args: argparse.Namespace, sizes: Sequence[int]) -> dict[int, int]:
    """Blocks of the pool by block size: the same bytes each time. The first of a pool is never given out."""
    if args.capacity_tokens:
        return {size: args.capacity_tokens // size + 1 for size in sizes}
    if cfg.engine.kv_cache_bytes is None:
        raise UserError("engine.kv_cache_bytes is null, so the cache's size is the GPU's; give --capacity-tokens")
    pool = pool_of(cfg, read_model_config(resolve_path(cfg.model.path) / "config.json"), device_of(cfg))
    if pool.layout.windowed:
        raise UserError("layers with a sliding window need other blocks; give --capacity-tokens to count without them")
    budget, context = cfg.engine.kv_cache_bytes, cfg.engine.max_model_len
    pools = {size: Pool(pool.layout, size, pool.dtype, pool.tensor_parallel, pool.step_tokens) for size in sizes}
    return {size: kv_plan(pools[size], context, budget).blocks or 0 for size in sizes}


def _replayed(requests: Sequence[TracedRequest], blocks: dict[int, int], setting: "Setting") -> list["Replayed"]:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("vllm").setLevel(logging.ERROR)
    from pipeline.engine.blocks.replay import replay

    return [replay(requests, size, count, setting) for size, count in blocks.items()]


def _report(
    args: argparse.Namespace,
    backend: str,
    setting: "Setting",
    rows: Sequence["Replayed"],
    choice: "Choice",
    requests: int,
) -> dict[str, object]:
    return {
        "trace": args.trace or args.samples,
        "requests": requests,
        "backend": backend,
        "rule": RULES[backend].text(),
        "setting": asdict(setting),
        "tolerance": args.tolerance,
        "sizes": [asdict(row) for row in rows],
        "size": choice.size,
        "why": choice.why,
        "patch": [f"engine.block_size={choice.size}"],
    }


def _text(cfg: RunConfig, backend: str, rows: Sequence["Replayed"], choice: "Choice", requests: int) -> str:
    usual, now = RULES[backend].usual, cfg.engine.block_size
    same = " (what null means here)" if choice.size == usual else f" (null means {usual} here)"
    is_now = f"null, that is {usual}" if now is None else now
    return "\n".join(
        [
            f"{requests} requests, {rows[0].prompt_tokens:,} tokens of prompts; {RULES[backend].text()}",
            "",
            *_table(rows),
            "",
            f"take    {choice.size}: {choice.why}",
            f"set     engine.block_size={choice.size}{same}; it is {is_now} now",
            "Times are ratios, of this machine. Other counts are the requests' own and come out the same everywhere.",
        ]
    )


def _table(rows: Sequence["Replayed"]) -> list[str]:
    first = rows[0].seconds
    cells = [
        ("size", "tail waste", "prefix hits", "computed", "again", "preempted", "blocked", "steps", "peak", "held")
        + ("table", "longest", "hashes", "time")
    ]
    for row in rows:
        cells.append(
            (
                f"{row.block_size}",
                f"{row.tail_tokens:.1f}",
                f"{row.hit_tokens:,} ({row.hit_tokens / row.prompt_tokens:.1%})",
                f"{row.computed_tokens:,}",
                f"{row.recomputed_tokens:,}",
                f"{row.preemptions:,}",
                f"{row.blocked:,}",
                f"{row.steps:,}",
                f"{row.peak_tokens:,}",
                f"{row.held_tokens:,.0f}",
                f"{row.entries:.1f}",
                f"{row.longest_table:,}",
                f"{row.hashes:,}",
                f"x{row.seconds / first:.2f}",
            )
        )
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(part.rjust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in cells]
