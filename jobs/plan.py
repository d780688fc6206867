"""What a model will need, before anything is loaded: `python -m jobs.plan memory --config ... --context 1048576`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs._cli import run_command
from pipeline.config import RunConfig, UserError, resolve_path
from pipeline.engine.kv_layout import DTYPE_BYTES
from pipeline.engine.memory import KvPlan, kv_plan
from pipeline.engine.weight_count import counted_parameters, stored_parameters
from serve.kv_budget import DRAFTS, device_of, pool_of, read_model_config

GIB = 1 << 30
MOST_GIB = 1 << 20  # of one GPU


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints weights, KV cache a token and requests at once; 1 when not one request of the context length fits."""
    text, fits = report(cfg, args)
    print(text)
    return 1 if fits is False else 0


def report(cfg: RunConfig, args: argparse.Namespace) -> tuple[str, bool | None]:
    """The report, and whether a request fits with the chosen type of the cache (None: no budget is known)."""
    folder = resolve_path(args.model or cfg.model.path)
    file = resolve_path(args.hf_config) if args.hf_config else folder / "config.json"
    model, device = read_model_config(file), device_of(cfg)
    context = cfg.engine.max_model_len if args.context is None else args.context
    if context < 1:
        raise UserError(f"--context is {context}; it must be a whole number above 0")
    with _described(file):
        parameters = counted_parameters(model) if args.hf_config else stored_parameters(folder)
        chosen = pool_of(cfg, model, device, args.kv_dtype).dtype
        pools = {
            dtype: pool_of(cfg, model, device, dtype) for dtype in dict.fromkeys((chosen, cfg.engine.dtype, "fp8"))
        }
    weights = None if parameters is None else parameters * DTYPE_BYTES[cfg.engine.dtype] // cfg.engine.tensor_parallel
    budget, source = _budget(cfg, args.gpu_memory, weights)
    plans = {dtype: kv_plan(pool, context, budget) for dtype, pool in pools.items()}
    layout, pool = pools[chosen].layout, pools[chosen]
    kinds = f"{layout.full} layers" + (
        f" and {layout.windowed} with a window of {layout.window}" if layout.windowed else ""
    )
    lines = [
        f"model     {file}",
        f"weights   {_weights(parameters, weights, cfg)}",
        f"KV cache  {kinds}, {layout.values} values a token for each of {layout.kv_heads} KV heads"
        f"{' (MLA: one latent)' if layout.mla else ''}; blocks of {pool.block_size} tokens",
        f"budget    {source}",
        f"context   {context:,} tokens",
        "",
        *_table(plans, chosen),
    ]
    if cfg.speculation.method in DRAFTS:
        lines.append("The layers of the draft, which have a cache of their own, are not counted.")
    return "\n".join(lines), plans[chosen].fits


@contextmanager
def _described(file: Path) -> Iterator[None]:
    """UserError where figures of `file` are of the wrong kind or missing."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{file} does not describe a model whose size can be told: {reason}") from None


def _budget(cfg: RunConfig, gpu_gib: float | None, weights: int | None) -> tuple[int | None, str]:
    if gpu_gib is not None:
        if not 0 < gpu_gib <= MOST_GIB:
            raise UserError(f"--gpu-memory is {gpu_gib:g}; it must be a number of GiB above 0, at most {MOST_GIB:,}")
        if weights is None:
            raise UserError("--gpu-memory needs weights that can be counted; give --model FOLDER")
        share = cfg.engine.gpu_memory_utilization
        left = int(gpu_gib * GIB * share) - weights
        rest = f"{_size(left)}: " if left > 0 else "none: "
        return max(left, 0), f"{rest}{share:g} of {gpu_gib:g} GiB less the weights; activations come off it too"
    if cfg.engine.kv_cache_bytes is not None:
        return cfg.engine.kv_cache_bytes, f"{_size(cfg.engine.kv_cache_bytes)} (engine.kv_cache_bytes)"
    return None, "not known: engine.kv_cache_bytes is null; give --gpu-memory GIB"


def _weights(parameters: int | None, weights: int | None, cfg: RunConfig) -> str:
    if parameters is None or weights is None:
        return "not counted for this model type without its files; give --model FOLDER"
    ranks = cfg.engine.tensor_parallel
    return f"{parameters:,} parameters, {_size(weights)} as {cfg.engine.dtype} on each of {ranks} rank(s)"


def _table(plans: dict[str, KvPlan], chosen: str) -> list[str]:
    cells = [("", "type", "bytes a token", "one request", "blocks", "at once", "longest request")]
    for dtype, plan in plans.items():
        known = plan.blocks is not None
        cells.append(
            (
                "*" if dtype == chosen else "",
                dtype,
                f"{plan.bytes_per_token:,}",
                _size(plan.needed_bytes),
                f"{plan.blocks:,}" if known else "-",
                f"{plan.concurrency:.2f}" + ("" if plan.fits else " (does not fit)") if known else "-",
                f"{plan.longest:,}" if known else "-",
            )
        )
    widths = [max(len(row[column]) for row in cells) for column in range(7)]
    return ["  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / (1 << 20):.2f} MiB"


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """A dry run shows the report: nothing would start."""
    return report(cfg, args)[0]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["memory"], help="what to plan")
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", metavar="FOLDER", help="a model folder (default: model.path)")
    model.add_argument("--hf-config", metavar="FILE", help="a model's config.json, where the weights are not here")
    parser.add_argument("--context", metavar="TOKENS", type=int, help="of one request (default: engine.max_model_len)")
    parser.add_argument("--kv-dtype", choices=list(DTYPE_BYTES), help="type of the KV cache (default: kv.dtype)")
    parser.add_argument("--gpu-memory", metavar="GIB", type=float, help="memory of one GPU, instead of kv_cache_bytes")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("plan", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
