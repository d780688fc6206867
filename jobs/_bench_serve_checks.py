"""What must hold between rows on any machine: counts and orders, no absolute figures. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]
FASTER = (("A'", "A"), ("B", "A"), ("B", "A'"))  # the first writes more tokens a second, in its best repeat


def broken(entries: Sequence[Entry]) -> list[str]:
    """A sentence for each that does not; a row that did not run is one too."""
    ran = {entry["row"]: entry for entry in entries if entry["ran"]}
    absent = [f"row {entry['row']} did not run: {entry['why_not']}" for entry in entries if not entry["ran"]]
    return [*absent, *_counts(ran), *_orders(ran)]


def _counts(ran: Mapping[str, Entry]) -> Iterator[str]:
    sent = {name: entry["requests_ok"] for name, entry in ran.items()}
    if len(set(sent.values())) > 1:
        yield f"the rows did not get the same number of replies: {sent}"
    for name, entry in ran.items():
        drafts = entry["acceptance"]
        if drafts and not drafts["accepted_tokens"] <= drafts["draft_tokens"]:
            yield f"row {name} accepted more tokens than were drafted: {drafts}"
        if bool(drafts) != (name == "E") and name not in ("F", "G"):
            yield f"row {name} {'drafted' if drafts else 'drafted nothing'}"


def _orders(ran: Mapping[str, Entry]) -> Iterator[str]:
    for fast, slow in FASTER:
        if fast in ran and slow in ran:
            ours, theirs = (max(ran[name]["output_tokens_per_s_repeats"]) for name in (fast, slow))
            if ours <= theirs:
                yield f"row {fast} ({ours:.0f} tokens/s) is not faster than row {slow} ({theirs:.0f})"
    if "B" in ran and "D" in ran and ran["D"]["kv_tokens"] < 1.9 * ran["B"]["kv_tokens"]:
        yield f"the FP8 KV cache holds {ran['D']['kv_tokens']} tokens, the plain one {ran['B']['kv_tokens']}"
