"""A comparison as text for a terminal and as a Markdown page. Pure functions of what `comparison.compare` gives."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.evaluation.comparison import SCORES, START

Found = Mapping[str, Any]

FAVOURITE = "decs"
LABELS = {
    "accuracy": ("accuracy", ".3f"),
    "tokens_mean": ("tokens a reply", ".1f"),
    "nrp_share": ("NRP share", ".3f"),
    "tokens_per_correct": ("tokens per right answer", ".1f"),
    "aes": ("AES", ".2f"),
    "kept_share": ("groups trained on", ".2f"),
    "tokens_sampled": ("tokens sampled", ",.0f"),
}
LESS_IS_BETTER = {"tokens_mean", "tokens_per_correct"}
PAGE = (*SCORES, "kept_share", "tokens_sampled")


def table(found: Found) -> str:
    """Mean over seeds, with the spread, of every arm; the start model first."""
    rows = [["arm", *(LABELS[key][0] for key in PAGE)], *_rows(found, PAGE)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    return "\n".join(lines)


def _rows(found: Found, keys: Sequence[str], family: str | None = None) -> list[list[str]]:
    return [[name, *(_cell(arm, key, family) for key in keys)] for name, arm in _arms(found).items()]


def _arms(found: Found) -> dict[str, Any]:
    return {START: found["start"], **found["arms"]}


def _cell(arm: Found, key: str, family: str | None) -> str:
    """`0.912 ± 0.010`; `-` where there is no figure."""
    mean, spread = (_part(arm[name], family).get(key) for name in ("mean", "spread"))
    form = LABELS[key][1]
    if mean is None:
        return "-"
    return f"{mean:{form}}" if spread is None else f"{mean:{form}} ± {spread:{form}}"


def _part(figures: Found, family: str | None) -> Found:
    return figures if family is None else figures["by_family"].get(family, {})


def families(found: Found) -> list[str]:
    """The families that were measured."""
    return sorted(found["start"]["mean"]["by_family"])


def ahead(found: Found, favourite: str = FAVOURITE) -> list[dict[str, Any]]:
    """Every figure in which another arm is better than `favourite` on average: `family` (None: all), `figure`, `arm`,
    both means, and in how many of the seeds that both have the arm is ahead."""
    if favourite not in found["arms"]:
        return []
    ours, losses = found["arms"][favourite], []
    for family in (None, *families(found)):
        for key in SCORES:
            for name, arm in found["arms"].items():
                mine, theirs = _part(ours["mean"], family).get(key), _part(arm["mean"], family).get(key)
                if name != favourite and _better(key, theirs, mine):
                    pairs = [
                        _better(key, _figure(arm, s, key, family), _figure(ours, s, key, family))
                        for s in arm["seeds"]
                        if s in ours["seeds"]
                    ]
                    row = {"family": family, "figure": key, "arm": name, "ours": mine, "theirs": theirs}
                    losses.append({**row, "seeds_ahead": sum(pairs), "seeds": len(pairs)})
    return losses


def _figure(arm: Found, seed: str, key: str, family: str | None) -> float | None:
    return _part(arm["seeds"][seed], family).get(key)


def _better(key: str, one: float | None, other: float | None) -> bool:
    if one is None or other is None or math.isclose(one, other, abs_tol=1e-9):
        return False
    return one < other if key in LESS_IS_BETTER else one > other


# --- Markdown ---


def markdown(found: Found, images: Mapping[str, str]) -> str:
    """The page; `images` maps a figure's name to its path beside the page."""
    parts = [
        "# Results",
        "Written from `compare.json` by `python -m jobs.compare --write-docs FILE`; no number is typed in.",
        _setting(found),
        "## All families",
        _markdown_table(["arm", *(LABELS[key][0] for key in PAGE)], _rows(found, PAGE)),
        "Mean ± standard deviation over seeds. Accuracy and tokens are those of held-out problems; AES is the "
        "accuracy-efficiency score against the start model measured with the same seed, on the means over families; "
        "NRP share is the necessary part of the thinking in right replies.",
        _image(images, "tradeoff", "Accuracy against tokens a reply"),
        "## Where another arm is ahead of DECS",
        _losses(found),
    ]
    for family in families(found):
        trained = "" if family in found["trained_on"] else " (not trained on)"
        rows = _rows(found, SCORES, family)
        parts += [f"## {family}{trained}", _markdown_table(["arm", *(LABELS[key][0] for key in SCORES)], rows)]
    parts += [
        "## How they learn",
        _image(images, "curves", "Accuracy, tokens and share of easy groups by training step"),
        "## Words of reconsideration",
        _image(images, "words", "Words of reconsideration a reply, by family"),
        "## Necessary thinking by difficulty",
        _image(images, "levels", "NRP share by level of the problem"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _setting(found: Found) -> str:
    budget, held_out = found["budget"], found["held_out"]
    curriculum = ", ".join(f"{key} {value}" for key, value in found["curriculum"].items())
    lines = [
        f"Comparison `{found['name']}`: {len(found['arms'])} arms, seeds {', '.join(map(str, found['seeds']))}, "
        f"{found['steps']} steps of {found['prompts_per_step']} problems x {found['group_size']} samples. Every arm "
        f"starts from the same model (weights `{found['model_digest'][:12]}`), is asked the same problems in the same "
        f"order and samples {budget['traces_per_arm']:,} traces"
        + (" (counted: equal)." if budget["equal"] else "; **the budgets were not equal**, see below."),
        f"Trained on {', '.join(found['trained_on'])}; measured on {held_out['problems']} held-out problems, "
        f"{held_out['samples']} repl{'y' if held_out['samples'] == 1 else 'ies'} each. The curriculum of `decs` and "
        f"`decs-no-decoupling`: {curriculum}; the other arms have none. Config `{found['config_digest'][:12]}`.",
    ]
    lines += [f"- **{text}**" for text in budget["complaints"]]
    lines += [f"- **{f['arm']} (seed {f['seed']}) failed:** {f['why']}" for f in found["failures"]]
    return "\n\n".join(lines)


def _losses(found: Found) -> str:
    if FAVOURITE not in found["arms"]:
        return "DECS was not among the arms."
    rows = [
        [
            loss["family"] or "all",
            LABELS[loss["figure"]][0],
            loss["arm"],
            f"{loss['theirs']:{LABELS[loss['figure']][1]}}",
            f"{loss['ours']:{LABELS[loss['figure']][1]}}",
            f"{loss['seeds_ahead']} of {loss['seeds']}",
        ]
        for loss in ahead(found)
    ]
    if not rows:
        return "In no figure and no family is another arm ahead on average."
    head = ["family", "figure", "arm", "its mean", "mean of DECS", "seeds in which it is ahead"]
    return _markdown_table(head, rows)


def _image(images: Mapping[str, str], name: str, title: str) -> str:
    return f"![{title}]({images[name]})" if name in images else ""


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
