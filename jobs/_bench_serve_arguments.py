"""The options of the table of serving levers, and what a dry run says of them."""

import argparse
import math
from collections.abc import Callable

from jobs._bench_refused import CPU_FP8
from jobs._bench_requests import LENGTHS
from jobs._bench_rows import ROWS, Choices, chosen, no_policy, not_given, row_config, stack_of
from jobs._cli import whole_number
from jobs._dashboard import dashboard_arguments
from pipeline.config import RunConfig, UserError, check_model_folder

CI = {"rows": "A,A',B,D,E,F", "requests": 32, "repeats": 3, "limit": 4, "drafts": (3,), "tokens": (8, 160)}
USUAL = {"rows": ",".join(ROWS), "requests": 48, "repeats": 3, "limit": None, "drafts": (2, 4), "tokens": None}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds them to the command's parser."""
    names = "; ".join(f"{row.name} {row.title}" for row in ROWS.values())
    parser.add_argument("--rows", help=f"which, such as A,B,E (default: all): {names}")
    parser.add_argument("--ci", action="store_true", help="the smallest form, which also checks counters and orderings")
    _numbers(parser)
    _load(parser)
    parser.add_argument("--trained", metavar="FOLDER", help="row G: the checkpoint trained to think shorter")
    parser.add_argument("--thinking-budget", type=whole_number("--thinking-budget", 0), help="row G: tokens a reply")
    parser.add_argument("--price-per-hour", type=above("--price-per-hour"), default=1.0, help="of a core or GPU (1.0)")
    parser.add_argument("--suite", help="a benchmark instead of the config's problems, as for jobs.evaluate")
    parser.add_argument("--suite-file", metavar="FILE", help="the benchmark's rows instead of the hub")
    dashboard_arguments(parser)
    parser.set_defaults(split=None, model=None, model_id=None, out=None)  # what an evaluation also asks for


def _numbers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=whole_number("--requests", 2), help="in each repeat (default 48)")
    parser.add_argument("--repeats", type=whole_number("--repeats"), help="of each row (default 3)")
    parser.add_argument("--clients", type=whole_number("--clients", 2), default=16, help="replies at once (default 16)")
    parser.add_argument("--limit", type=whole_number("--limit"), metavar="N", help="only N problems are answered")
    parser.add_argument("--drafts", type=whole_numbers("--drafts"), help="draft lengths that E tries (default 2,4)")
    parser.add_argument("--tokens", type=whole_numbers("--tokens"), help="lengths of the load's replies (8,24,64,160)")


def _load(parser: argparse.ArgumentParser) -> None:
    rate = "--request-rate"
    parser.add_argument(rate, type=above(rate), default=math.inf, help="requests/s of B to G (default: all at once)")
    parser.add_argument("--temperature", type=above("--temperature", 0.0), default=0.0, help="of the load (default 0)")
    parser.add_argument("--slo-ttft", type=above("--slo-ttft"), default=1000.0, help="ms to a good first token (1000)")
    parser.add_argument("--slo-tpot", type=above("--slo-tpot"), default=50.0, help="ms a token after it (default 50)")


def above(option: str, least: float | None = None) -> Callable[[str], float]:
    """For `type=`: a finite number above 0, or of at least `least`. UserError else."""

    def parsed(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value > 0 if least is None else value >= least) or math.isinf(value):
            kind = "above 0" if least is None else f"from {least:g}"
            raise UserError(f"{option} takes a number {kind}, got '{text[:40]}'")
        return value

    return parsed


def whole_numbers(option: str) -> Callable[[str], tuple[int, ...]]:
    """For `type=`: whole numbers above 0 with commas between them, each once. UserError else."""

    def parsed(text: str) -> tuple[int, ...]:
        return tuple(sorted({whole_number(option)(part) for part in text.split(",")}))

    return parsed


def settle(args: argparse.Namespace, cfg: RunConfig) -> None:
    """Fills in what the command line leaves open: the usual, or CI's. UserError for what would do nothing, or not
    fit."""
    for name, value in (CI if args.ci else USUAL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    room = cfg.engine.max_model_len // 2  # the other half is for the prompt
    args.tokens = args.tokens or tuple(length for length in LENGTHS if length <= room) or (1,)
    if max(args.tokens) > room:
        raise UserError(f"--tokens {max(args.tokens)}: at most {room} fit, half of engine.max_model_len")
    named = {row.name for row in chosen(args.rows)}
    for option, value in (("--trained", args.trained), ("--thinking-budget", args.thinking_budget)):
        if value is not None and "G" not in named:
            raise UserError(f"{option} is for row G, which --rows {args.rows} leaves out")
    if args.thinking_budget is not None and not (cfg.reasoning.parser or cfg.reasoning.start):
        raise UserError("--thinking-budget needs reasoning.parser, or reasoning.start and reasoning.end")
    if args.thinking_budget is not None and args.ci:
        raise UserError("--ci has no row G; leave --thinking-budget out")
    if args.trained is not None:
        try:
            check_model_folder(args.trained)
        except UserError as error:
            raise UserError(f"--trained {args.trained}: {str(error).removeprefix('model.path: ')}") from None


def choices_of(args: argparse.Namespace, cfg: RunConfig) -> Choices:
    """What the command line and the device decide about rows."""
    from serve.kv_budget import device_of

    weights = CPU_FP8 if device_of(cfg) == "cpu" else Choices.weights
    return Choices(args.clients, args.drafts, weights, args.trained, args.thinking_budget)


def plan_text(cfg: RunConfig, args: argparse.Namespace) -> str:
    """A line a row: what it asks of vLLM beside the row before, or why it is not measured here."""
    from jobs._bench_refused import refused_here
    from jobs._evaluation import asked_for

    settle(args, cfg)
    asked_for(cfg, args)  # for what it refuses
    choices, ran, lines = choices_of(args, cfg), set(), []
    for row in chosen(args.rows):
        refused = not_given(row, choices) or no_policy(row, cfg)
        if not refused:
            refused = refused_here(
                row_config(row, cfg, stack_of(row, ran), choices, max(choices.drafts), "decisions.jsonl")
            )
        ran |= set() if refused else {row.name}
        lines.append(f"{row.name}  {row.title}: {f'not measured: {refused}' if refused else row.lever}")
    load = f"{args.repeats} x {args.requests} requests of {','.join(map(str, args.tokens))} tokens a row"
    return "\n".join([f"{load}, {args.clients} at once, one vLLM server a row", *lines])
