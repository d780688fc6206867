"""The chain from a version back to its start, and the printed tree. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs._lineage_query import Found
from serve.policy import fingerprint

IDS_SHOWN = 3


def parents(found: Found, of_run: Sequence[Found]) -> list[dict[str, Any]]:
    """The versions below `found` in its run, newest first, down to version 0: one entry each for those that are known
    (`version`, `digest`, `uri`), one for each row of others (`version`, `to`), which were not kept.

    `of_run`: the known versions of the same run. A snapshot whose manifest names no parent is a start itself; without
    a manifest the parent is the version before, since every step makes one.
    """
    known = {one.version: one for one in of_run}
    chain: list[dict[str, Any]] = []
    at = _parent(found)
    while at is not None and at >= 0:
        if one := known.get(at):
            chain.append({"version": at, "digest": one.digest, "uri": one.uri, "number": one.number})
            at = _parent(one)
        else:
            if at == 0:  # the start model is told apart
                break
            if chain and "to" in chain[-1]:
                chain[-1]["to"] = at
            else:
                chain.append({"version": at, "to": at})
            at -= 1
    return chain


def _parent(found: Found) -> int | None:
    if found.manifest_read:
        return found.parent
    return found.version - 1 if found.version > 0 else None


def lines(told: Mapping[str, Any]) -> list[str]:
    """The lineage as a tree for people."""
    found = [f"{told['mark']}  digest {told['digest']}"]
    branches = [
        ("snapshot", _snapshot(told)),
        ("registry", _registry(told)),
        ("run", _run(told)),
        ("config", _config(told)),
        ("code", _code(told)),
        ("problems", _problems(told["problems"])),
        ("parents", _parents(told["parents"])),
        ("start", _start(told["start"])),
    ]
    if told["also"]:
        branches.append(("also", [f"the same version number in other runs: {', '.join(told['also'])}"]))
    for index, (name, texts) in enumerate(branches):
        last = index == len(branches) - 1
        for row, text in enumerate(texts):
            stem = ("└─ " if last else "├─ ") if row == 0 else ("   " if last else "│  ")
            found.append(f"{stem}{name if row == 0 else '':10}{text}")
    return found


def _snapshot(told: Mapping[str, Any]) -> list[str]:
    kept = told["snapshot"]
    return [f"{kept['state']}: {kept['uri']}", *([kept["detail"]] if kept["detail"] else [])]


def _registry(told: Mapping[str, Any]) -> list[str]:
    entry = told["registry"]
    if not entry:
        return ["not registered"]
    names = f", {', '.join(entry['aliases'])}" if entry["aliases"] else ""
    return [f"{entry['model']} {entry['number']}{names}"]


def _run(told: Mapping[str, Any]) -> list[str]:
    run = told["run"]
    step = f"after step {told['step']}"
    return [f"{run['name']} ({run['id']}, {run['status']}), {step}"] if run else [f"unknown, {step}"]


def _config(told: Mapping[str, Any]) -> list[str]:
    config = told["config"]
    if config["same"]:
        return [f"{config['digest'][:12]}, recomputed from the run's {config['file']}: the same"]
    if config["same"] is None:
        return [f"{config['digest'][:12]}, not recomputed: {config['detail']}"]
    return [f"{config['digest'][:12]}, DIFFERS: {config['detail']}"]


def _code(told: Mapping[str, Any]) -> list[str]:
    code = told["code"]
    if not code:
        return ["the run does not say which commit"]
    dirty = {"true": ", with changes that are in no commit", "false": ""}.get(code["dirty"], ", perhaps changed")
    return [f"commit {code['commit']}{dirty}"]


def _problems(trained: Mapping[str, Any]) -> list[str]:
    if "unknown" in trained:
        return [f"unknown: {trained['unknown']}"]
    sources = ", ".join(f"{name} {count}" for name, count in trained["by_source"].items())
    shown = ", ".join(trained["ids"][:IDS_SHOWN])
    found = [f"{trained['count']} problems in {trained['groups']} groups: {sources or 'none'}"]
    if shown:
        found.append(f"such as {shown} (all in --json)")
    if not trained["complete"]:
        found.append(f"the newest checkpoint covers steps up to {trained['up_to']} only")
    return found


def _parents(chain: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for entry in chain:
        if "to" not in entry:
            found.append(f"{fingerprint(entry['version'], entry['digest'])}  {entry['uri']}")
        elif entry["to"] == entry["version"]:
            found.append(f"v{entry['version']} (not kept)")
        else:
            found.append(f"v{entry['version']} to v{entry['to']} (not kept)")
    return found or ["none"]


def _start(start: Mapping[str, Any]) -> list[str]:
    if not start["path"]:
        return ["unknown"]
    found = [f"{start['path']}  {start['mark'] or 'without a manifest'}"]
    if start["detail"]:
        found.append(start["detail"])
    return found
