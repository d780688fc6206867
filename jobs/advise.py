"""Which lever to pull first, by figures in a file or measured at a running endpoint: `python -m jobs.advise`."""

import argparse
import asyncio
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs._cli import run_command, whole_number
from pipeline.config import RunConfig, UserError, check_address, check_key, resolve_path
from pipeline.evaluation.endpoint import KEY_VARIABLE, api_key
from serve.advice import Advice, advise
from serve.advice_profile import Profile, read_profile

SECONDS = 60
MOST_SECONDS = 86_400
MEASURING = (
    *("key", "seconds", "requests", "prompts", "clients", "evaluation", "ttft_target_ms", "itl_target_ms"),
    *("figure", "save_profile"),
)

TARGETS = {
    "--ttft-target-ms": "first tokens that come later",
    "--itl-target-ms": "tokens that come later after one another",
}


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints what was measured, where that was asked for, and the levers in order."""
    _check(args)
    if args.endpoint is None:
        print(_levers(read_profile(resolve_path(args.profile)), cfg))
        return 0
    print(_levers(_measure(args), cfg))
    return 0


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """The levers in order, as text, for a profile; for an endpoint, what would be measured."""
    _check(args)
    if args.endpoint is None:
        return _levers(read_profile(resolve_path(args.profile)), cfg)
    length = f"until {args.requests} requests have ended" if args.requests else f"for {args.seconds} s"
    whose = f"requests of {args.prompts}, {args.clients} at a time" if args.prompts else "its users' traffic"
    return f"reads the figures of {args.endpoint} {length}, beside {whose}"


def _check(args: argparse.Namespace) -> None:
    if (args.profile is None) == (args.endpoint is None):
        raise UserError("give --profile FILE, or --endpoint URL to measure one")
    given = [name for name in MEASURING if getattr(args, name)]
    if args.profile is not None and given:
        raise UserError(f"--{given[0].replace('_', '-')} goes with --endpoint; a profile holds what was measured")
    if args.clients and not args.prompts:
        raise UserError("--clients sends --prompts; give a JSONL file of them")
    if args.endpoint is not None:
        _check_endpoint(args)
    args.seconds, args.clients = args.seconds or SECONDS, args.clients or 1


def _check_endpoint(args: argparse.Namespace) -> None:
    """What can be wrong about a measurement before the endpoint is asked."""
    from jobs._observe import read_rows
    from jobs._profile import check_figures, said_figures

    check_address(args.endpoint, "--endpoint")
    check_key(args.key or api_key(), "--key" if args.key else KEY_VARIABLE)
    check_figures(said_figures(args.figure))
    if args.prompts:
        read_rows(resolve_path(args.prompts))


def _milliseconds(option: str) -> Callable[[str], float]:
    def parsed(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise UserError(f"{option} takes milliseconds above 0, got '{text[:40]}'")
        return value

    return parsed


def _measure(args: argparse.Namespace) -> Profile:
    from jobs._observe import observe, read_rows
    from jobs._profile import overthinking_of, profile_of, said_figures, write_profile

    said = said_figures(args.figure)
    if args.itl_target_ms:
        said["itl_target_ms"] = args.itl_target_ms
    if args.evaluation:
        said["overthinking_share"] = overthinking_of(args.evaluation)
    rows = read_rows(resolve_path(args.prompts)) if args.prompts else []
    key = args.key or api_key()
    observed = asyncio.run(observe(args.endpoint, key, args.seconds, args.requests, rows, args.clients))
    profile = profile_of(observed, args.ttft_target_ms, said)
    if observed.failures:
        print(f"{len(observed.failures)} of {len(observed.sent)} requests failed: {observed.failures[0]}\n")
    print(_figures(profile), end="\n\n")
    if args.save_profile:
        write_profile(Path(args.save_profile), profile, f"measured by: python -m jobs.advise {_command_line()}")
    return profile


def _command_line() -> str:
    """The arguments, without the key."""
    kept, words = [], iter(sys.argv[1:])
    for word in words:
        if word == "--key":
            next(words, None)
        elif not word.startswith("--key="):
            kept.append(word)
    return shlex.join(kept)


def _figures(profile: Profile) -> str:
    known: dict[str, Any] = profile.model_dump(exclude_none=True, exclude_unset=True)
    missing = [name for name in Profile.model_fields if getattr(profile, name) is None]
    lines = [f"{name:24}{value}" for name, value in known.items()]
    return "\n".join([*lines, f"not measured: {', '.join(missing) or 'nothing'}"])


def _levers(profile: Profile, cfg: RunConfig) -> str:
    found = advise(profile, cfg)
    if not found:
        return "nothing in these figures calls for a lever (figures that are missing were not judged)"
    return "\n\n".join(_text(number, advice) for number, advice in enumerate(found, 1))


def _text(number: int, advice: Advice) -> str:
    return "\n".join(
        [
            f"{number}. {advice.lever}  [{advice.situation}; evidence: {advice.evidence}]",
            f"   set     {'  '.join(advice.patch) or 'nothing in the config'}",
            f"   why     {advice.why}",
            f"   needs   {advice.precondition}",
            f"   verify  {advice.verify}",
        ]
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--profile", metavar="FILE", help="YAML of measured figures (serve/advice_profile.py)")
    add("--endpoint", metavar="URL", help="measure a running endpoint instead, from its own figures")
    add("--key", help="a key of it with the scope admin (default: DECS_API_KEY)")
    add("--seconds", type=whole_number("--seconds", most=MOST_SECONDS), metavar="N", help=f"(default: {SECONDS})")
    add("--requests", type=whole_number("--requests"), metavar="N", help="measure until so many requests have ended")
    add("--prompts", metavar="FILE", help="JSONL of requests to send meanwhile: prompt or messages, max_tokens, at (s)")
    add("--clients", type=whole_number("--clients"), metavar="N", help="of --prompts without `at`: so many at a time")
    add("--evaluation", metavar="FOLDER", help="of jobs.evaluate or a training run: how much is thought too much")
    for option, what in TARGETS.items():
        add(option, type=_milliseconds(option), metavar="MS", help=f"{what} are late")
    add("--figure", action="append", default=[], metavar="NAME=VALUE", help="one that cannot be measured (own_weights)")
    add("--save-profile", metavar="FILE", help="keep the measured profile")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("advise", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
