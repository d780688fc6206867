"""The table of serving levers as text: figures of rows that ran, why others did not, and ratios between rows. Pure but
for the look whether raw results are there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs._bench_serve_figures import gain

Entry = Mapping[str, Any]
NONE = "–"
LATENCIES = {"ttft_ms": "first token", "itl_ms": "between chunks", "tpot_ms": "a token", "e2e_ms": "whole reply"}


def compared(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """(row, row it is compared with): each with the one it stands on, and all with B, or with the first that ran."""
    ran = [entry["row"] for entry in entries if entry["ran"]]
    pairs = []
    for entry in (one for one in entries if one["ran"]):
        name, before = entry["row"], entry["on_top_of"][-1:]
        first = "B" if "B" in ran and name not in ("A", "A'", "B") else ran[0]
        static = ["A'"] if name == "B" else ["E"] if name == "F" else []
        pairs += [(name, other) for other in dict.fromkeys([*before, *static, first]) if other in ran and other != name]
    return pairs


def ratios(entries: Sequence[Entry], folder: Path) -> list[dict[str, Any]]:
    """Tokens a second of rows over those of other rows, by repeats of the same requests; only where the raw results of
    both are there to be looked at."""
    by_name = {entry["row"]: entry for entry in entries}
    found = []
    for name, other in compared(entries):
        ours, theirs = by_name[name], by_name[other]
        if all((folder / file).is_file() for entry in (ours, theirs) for file in entry["raw"]):
            rates = [entry["output_tokens_per_s_repeats"] for entry in (ours, theirs)]
            found.append({"row": name, "over": other, "output_tokens_per_s": gain(*rates)})
    return found


def text(entries: Sequence[Entry], found: Sequence[Mapping[str, Any]], price: Mapping[str, Any]) -> str:
    """Markdown. `found`: the ratios; `price`: what an hour was priced at."""
    ran = [entry for entry in entries if entry["ran"]]
    parts = [_speed(ran, found), _latency(ran), _room(ran), _answers(ran, price), _absent(entries)]
    return "\n".join(part for part in parts if part)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _speed(ran: Sequence[Entry], found: Sequence[Mapping[str, Any]]) -> str:
    def times(name: str) -> str:
        mine = [one for one in found if one["row"] == name]
        return ", ".join(f"{ratio(one['output_tokens_per_s'])} of {one['over']}" for one in mine) or NONE

    rows = [
        [
            entry["row"],
            title(entry),
            ", ".join(entry["on_top_of"]) or NONE,
            span(entry["output_tokens_per_s"], entry["output_tokens_per_s_interval"], ".0f"),
            times(entry["row"]),
        ]
        for entry in ran
    ]
    return _table(["row", "lever", "on top of", "tokens/s (95 %)", "times"], rows)


def _latency(ran: Sequence[Entry]) -> str:
    head = ["row", *(f"{label}, ms: p50 / p95 / p99" for label in LATENCIES.values())]
    rows = []
    for entry in ran:
        cells = [" / ".join(number(entry[name][share], ".1f") for share in ("p50", "p95", "p99")) for name in LATENCIES]
        rows.append([entry["row"], *cells])
    return _table(head, rows)


def _room(ran: Sequence[Entry]) -> str:
    rows = []
    for entry in ran:
        drafts, good = entry["acceptance"], entry["goodput"]
        accepted = f"{drafts['rate']:.2f}, {drafts['tokens_per_step']:.2f} tokens a step" if drafts else NONE
        kept = f"{good['requests_per_s']:.2f} ({good['share']:.0%})"
        memory = number(entry["peak_memory_gb"], ".2f")
        rows.append([entry["row"], kept, memory, number(entry["kv_tokens"], ",d"), accepted])
    head = ["row", "good requests/s (share)", "peak memory, GiB", "KV cache, tokens", "drafts accepted"]
    return _table(head, rows)


def _answers(ran: Sequence[Entry], price: Mapping[str, Any]) -> str:
    rows = [
        [
            entry["row"],
            span(entry["accuracy"], entry["accuracy_interval"], ".3f"),
            span(entry["tokens_per_correct"], entry["tokens_per_correct_interval"], ".0f"),
            number(entry["seconds_per_correct"], ".3f"),
            number(entry["cost_per_correct"], ".2e"),
        ]
        for entry in ran
    ]
    cost = f"cost a right answer ({price['per_hour']:g} per {price['unit']} and hour, {price['units']} of them)"
    return _table(["row", "accuracy (95 %)", "tokens a right answer (95 %)", "seconds a right answer", cost], rows)


def _absent(entries: Sequence[Entry]) -> str:
    absent = [[one["row"], title(one), first_line(one["why_not"])] for one in entries if not one["ran"]]
    return _table(["row", "lever", "why it did not run"], absent)


def title(entry: Entry) -> str:
    """The lever's name; with the draft length where a sweep chose it."""
    length = entry.get("draft_length")
    return f"{entry['title']}, {length} tokens" if entry["ran"] and length else entry["title"]


def first_line(why: str) -> str:
    """Of a reason that brings a log's last lines along."""
    return why.splitlines()[0]


def number(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def span(value: float | None, interval: Sequence[float] | None, form: str) -> str:
    """A figure with its interval, where it has one."""
    if value is None or interval is None:
        return number(value, form)
    low, high = (format(end, form) for end in interval)
    return f"{value:{form}} ({low} to {high})"


def ratio(found: Mapping[str, Any]) -> str:
    """`1.52 (1.40 to 1.61)`."""
    low, high = found["low"], found["high"]
    return span(found["ratio"], None if low is None else (low, high), ".2f")
