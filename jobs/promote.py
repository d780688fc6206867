"""Take a registered version to the users: `python -m jobs.promote --config FILE --candidate NUMBER|ALIAS|vVERSION`.

It is measured on the frozen problems against the champion, then watched on a part of the traffic, then swapped into
every replica; the aliases `champion` and `previous` follow. Exit code 0: promoted; 1: refused or rolled back, with the
reason in one line; 2: something to mend.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jobs._cli import run_command
from jobs._dashboard import dashboard_arguments, dashboard_of
from jobs._runs import held
from jobs._tracking import with_local_tracking
from pipeline.config import RunConfig, UserError, results_root
from serve.promotion.flow import Outcome, Promotion

if TYPE_CHECKING:
    from jobs._released import Release
    from jobs._replicas import LiveEndpoint
    from serve.promotion.check import Decision


NAMES = "registry number (8), alias, or the snapshot's version (v8) or mark (v8-1a2b3c4d)"
FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
CHANGING = (
    "another command changes what the endpoint serves (process {process}): wait for it, or end it with Ctrl-C, and it "
    "takes back what it has begun"
)


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Promotes or refuses; the endpoint serves what it did before unless this returns 0."""
    with alone(cfg):
        return _promote(cfg, args)


def release_name(text: str) -> str:
    """For `type=` of an argument: what can name a registered version, or UserError."""
    if not FORM.fullmatch(text):
        raise UserError(f"'{text[:40]}' names no registered version; give a {NAMES}")
    return text


def alone(cfg: RunConfig) -> AbstractContextManager[None]:
    """Held by every command that changes what is served: two at a time would take each other's canary away."""
    return held(results_root(cfg) / "gate", CHANGING)


def _promote(cfg: RunConfig, args: argparse.Namespace) -> int:
    from jobs import _gate_record, _released
    from jobs._replicas import LiveEndpoint
    from pipeline.judge import JudgeFailure
    from pipeline.loop.remote import RunFailed

    cfg = with_local_tracking(cfg, args.services)
    live = LiveEndpoint(cfg, dashboard_of(args))
    registry = _released.open_registry(cfg)
    found, served = _released.find(registry, args.candidate), registry.served()
    check_asked(live, found.number, served.number if served else None)
    candidate = _released.release(cfg, found)
    champion = _released.release(cfg, served) if served else None
    try:
        outcome = _tried(cfg, live, candidate, champion, lambda: registry.set_alias("champion", candidate.number))
    except (RunFailed, JudgeFailure) as error:
        print(f"error: {error}; the same command goes on with the samples that are there", file=sys.stderr)
        return 1
    run_id = _gate_record.keep(cfg, registry, candidate, champion.name if champion else "none", outcome)
    print(sentence(candidate.name, outcome) + (f" (MLflow run {run_id})" if run_id else ""), flush=True)
    if outcome.promoted:
        wanted = live.wanted()
        _released.tidy(cfg, registry, [wanted.policy.folder, *([wanted.canary.folder] if wanted.canary else [])])
    return 0 if outcome.promoted else 1


def check_asked(live: "LiveEndpoint", number: int, champion: int | None) -> None:
    """UserError where there is nothing to promote, or another canary is on."""
    if number == champion:
        raise UserError(
            f"number {number} of the registry is the champion already; name another --candidate, or swap an endpoint "
            "that serves other weights back to it with `python -m jobs.rollback --to champion`"
        )
    check_no_canary(live)


def check_no_canary(live: "LiveEndpoint") -> None:
    """UserError where one is on, or nothing is deployed."""
    live.address()  # says how to deploy where nothing is
    if canary := live.wanted().canary:
        raise UserError(f"a canary of {canary.fingerprint} is on; end it first with `python -m jobs.canary end`")


def _tried(
    cfg: RunConfig,
    live: "LiveEndpoint",
    candidate: "Release",
    champion: "Release | None",
    set_champion: Callable[[], None],
) -> Outcome:
    from jobs._gate import Gate
    from jobs._replicas import Replayed
    from pipeline.evaluation.endpoint import key_headers

    present = live.wanted().policy
    if champion is None or not present.same_weights(champion.policy):
        print(f"the endpoint serves {present.fingerprint}, the champion is {champion.name if champion else 'none'}")
    gate = Gate.open(cfg, candidate.policy.folder)
    decision = gate.decide(candidate.policy, champion.policy if champion else None, print)
    _show(decision)
    replay = Replayed(gate.cfg, live.address(), gate.problems, key_headers())
    promotion = Promotion(live, replay, cfg.gate, set_champion)
    if decision.passed:
        print(f"{candidate.name} passed the gate; now on {cfg.gate.canary_replicas} replica(s)", flush=True)
    outcome = promotion.run(candidate.policy, present, decision)
    print(f"replayed {replay.sent} frozen problems, {replay.failed} failed", flush=True)
    return outcome


def _show(decision: "Decision") -> None:
    from serve.promotion.record import table_text

    print(table_text(decision.checks) + (f"\n  {decision.note}" if decision.note else ""), flush=True)


def sentence(name: str, outcome: Outcome) -> str:
    """What became of it, for people."""
    took = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
    return f"{name} was {outcome.result}{took}: {outcome.reason}"


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    from pipeline.loop.frozen import check_frozen

    check_frozen(cfg)
    gate = cfg.gate
    sizes = [source.size for source in cfg.problems.held_out]
    there = "all" if None in sizes else sum(size for size in sizes if size)
    return "\n".join(
        [
            f"{args.candidate} of {cfg.tracking.registered_model} against its champion, on "
            f"{gate.problems or there} frozen problems x {gate.samples} samples",
            f"then on {gate.canary_replicas} replica(s) for {gate.soak_s:g} s and {gate.min_canary_requests} requests "
            f"at least, replaying {gate.replay or 'nothing'}; then on all",
        ]
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    dashboard_arguments(parser)
    parser.add_argument("--candidate", type=release_name, default="candidate", help=f"{NAMES} (default: candidate)")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("promote", __doc__, main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
