"""From replies and swaps to the figures of swap.json, and the promises they break. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs._bench_replies import Fault, Reply, count, declared, faults, overlaps
from jobs._bench_stats import divided, percentile, spread
from jobs._bench_swaps import Record, of_all

FAILURES_SHOWN = 20
QUIET, SWAPPING = "quiet", "swapping"
WHILE_KILLED = (Fault.BROKEN_STREAM, Fault.RESENT)  # what may happen then; at other times it counts as something else
PROMISES = [fault for fault in Fault if fault not in WHILE_KILLED]


def summarise(replies: Sequence[Reply], record: Record, wanted_swaps: int) -> dict[str, Any]:
    """All counts over all phases; the latency ratio over whole replies that no kill overlapped."""
    context = record.context()
    judged = [faults(reply, context) for reply in replies]
    pairs = zip(replies, judged, strict=True)
    good = [reply for reply, found in pairs if not found and not overlaps(reply, context.kill)]
    phases = {name: [reply for reply in good if reply.phase == name] for name in (QUIET, SWAPPING)}
    seconds = {name: [reply.seconds for reply in found] for name, found in phases.items()}
    texts = [f"{fault}: {text}" for found in judged for fault, text in found.items()]
    pauses = of_all(record.swaps, "pause_seconds")
    return {
        "requests": len(replies),
        **count(judged),
        "declared_mixtures": declared(replies),
        "swaps": len(record.swaps),
        "swaps_wanted": wanted_swaps,
        "pause_ms": spread([1000 * value for value in pauses], 1),
        "publish_to_confirm_s": spread([swap["seconds"] for swap in record.swaps]),
        "latency_ratio": divided(percentile(seconds[SWAPPING], 0.99), percentile(seconds[QUIET], 0.99)),
        "latency_ratio_p50": divided(percentile(seconds[SWAPPING], 0.5), percentile(seconds[QUIET], 0.5)),
        "latency_s": {name: {"replies": len(found), **spread(found)} for name, found in seconds.items()},
        "first_token_s": {name: spread(_first_tokens(found)) for name, found in phases.items()},
        "drain_s": spread(of_all(record.swaps, "drain_seconds")),
        "verify_s": spread(of_all(record.swaps, "verify_seconds")),
        "not_drained": sum(state["drained"] is False for swap in record.swaps for state in swap["replicas"]),
        "bytes": max(of_all(record.swaps, "bytes"), default=None),
        "parity_max": max(of_all(record.swaps, "parity"), default=None),
        "refused": dict(record.refused),
        "kill": record.kill,
        "failures": [*record.failures, *texts][:FAILURES_SHOWN],
        "swap_failures": len(record.failures),
    }


def _first_tokens(replies: Sequence[Reply]) -> list[float]:
    return [reply.first - reply.began for reply in replies if reply.shape.stream and reply.first is not None]


def broken_promises(summary: Mapping[str, Any], refusals: int) -> list[str]:
    """Sentences; none when all was kept. `refusals`: how many kinds of broken snapshots were asked for. Streams may
    break only while a replica is killed, and are `truncated` otherwise."""
    found = [f"{summary[fault]} of {summary['requests']} replies: {fault}" for fault in PROMISES if summary[fault]]
    if not summary["requests"]:
        found.append("no request was sent")
    if summary["swaps"] != summary["swaps_wanted"]:
        found.append(f"{summary['swaps']} of {summary['swaps_wanted']} swaps were confirmed")
    if summary["swap_failures"]:
        found.append(f"{summary['swap_failures']} swaps or refusals went wrong")
    if len(summary["refused"]) != refusals:
        found.append(f"{len(summary['refused'])} of {refusals} kinds of broken snapshots were refused")
    return found
