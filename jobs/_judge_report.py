"""How a taught judge does on problems it never saw: figures by family, a page of plots, the registry."""

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs._judge_data import JudgeData, label_held_out, questions
from pipeline.config import RunConfig
from pipeline.judge import JudgeItem, LearnedJudge
from pipeline.judge.corpus import Cut, mismatched
from pipeline.judge.findings import agreement, calibration, first_yes, is_yes, sweep

Report = dict[str, Any]
VALIDATION = "validation"  # problems of the training sources whose segments were set aside


def measure(cfg: RunConfig, data: JudgeData, model: Path) -> Report:
    """The report: for each source of held-out problems (and those set aside) agreement with the labeller on segments
    beside their own answer (`own`) and beside another one (`other`), on whole prefixes, tokens and seconds a trace."""
    judge = LearnedJudge(cfg.judge.model_copy(update={"name": "learned", "path": str(model), "digest": None}))
    identity = judge.describe()
    sets = {**({VALIDATION: data.validation} if data.validation else {}), **data.held_out}
    learned = sorted({cut.problem.source for cut in data.train})
    seen = {*learned, VALIDATION}
    families = {source: _family(cfg, cuts, judge, source in seen) for source, cuts in sets.items()}
    return {"judge": identity, "threshold": cfg.judge.threshold, "learned_from": learned, "families": families}


def _family(cfg: RunConfig, cuts: Sequence[Cut], judge: LearnedJudge, seen: bool) -> Report:
    rng = random.Random(f"judge/{cfg.run.seed}/test")
    own = label_held_out(cfg, questions(cuts))
    other = label_held_out(cfg, mismatched(cuts, rng, len(own.items)))
    items, labels = own.items + other.items, own.yes + other.yes
    answers = judge.probabilities(items)
    threshold, split = cfg.judge.threshold, len(own.items)
    return {
        "seen": seen,
        "own": agreement(own.yes, answers[:split], threshold).to_dict(),
        "other": agreement(other.yes, answers[split:], threshold).to_dict(),
        "all": agreement(labels, answers, threshold).to_dict(),
        "unlabelled": own.failed + other.failed,
        "prefixes": _prefixes(cuts, dict(zip(own.items, own.yes, strict=True)), judge, threshold),
        "sweep": sweep(labels, answers),
        "calibration": calibration(labels, answers),
        "disagreements": _disagreements(items, labels, answers, threshold),
    }


def _prefixes(cuts: Sequence[Cut], labels: dict[JudgeItem, bool], judge: LearnedJudge, threshold: float) -> Report:
    """Right traces with every segment labelled: how often the prefix is the labeller's, and what finding it costs
    without waves or cache (each trace judged by itself up to its first yes would read `tokens_per_trace`)."""
    right = [cut for cut in cuts if cut.right and all(item in labels for item in cut.items())]
    items = [item for cut in right for item in cut.items()]
    lengths = judge.prompt_lengths(items)
    began = time.perf_counter()
    answers = judge.probabilities(items)
    seconds = time.perf_counter() - began
    same, tokens, at = 0, 0, 0
    for cut in right:
        size = len(cut.texts)
        found = first_yes([is_yes(answer, threshold) for answer in answers[at : at + size]])
        same += found == first_yes([labels[item] for item in cut.items()])
        tokens += sum(lengths[at : at + (size if found is None else found + 1)])
        at += size
    per_token = seconds / max(sum(lengths), 1)
    return {
        "traces": len(right),
        "same_prefix": same / len(right) if right else None,
        "tokens_per_trace": tokens / len(right) if right else None,
        "seconds_per_trace": tokens * per_token / len(right) if right else None,
        "policy_tokens_per_trace": sum(cut.tokens for cut in right) / len(right) if right else None,
    }


def _disagreements(
    items: Sequence[JudgeItem], labels: Sequence[bool], answers: Sequence[Any], threshold: float
) -> list[dict[str, object]]:
    rows = [
        {"gold": item.gold, "segment": item.segment_text, "labelled": label, "said": float(answer)}
        for item, label, answer in zip(items, labels, answers, strict=True)
        if isinstance(answer, float) and is_yes(answer, threshold) != label
    ]
    return rows[:20]


def table(report: Report) -> str:
    """The figures by family, as text."""
    heads = ("segments", "agree", "false yes", "missed yes", "same prefix", "tokens", "ms")
    lines = [f"{'':36}" + "".join(f"{head:>13}" for head in heads)]
    for name, family in report["families"].items():
        for part in ("own", "other"):
            label = f"{name}{'' if family['seen'] else ' (never seen)'}, {part} answer"
            lines.append(f"{label:36}" + "".join(f"{cell:>13}" for cell in _cells(family, part)))
    return "\n".join(lines)


def _cells(family: Report, part: str) -> list[str]:
    found, prefixes = family[part], family["prefixes"] if part == "own" else {}
    shares = [found["agreement"], found["false_yes_rate"], found["missed_yes_rate"], prefixes.get("same_prefix")]
    tokens, seconds = prefixes.get("tokens_per_trace"), prefixes.get("seconds_per_trace")
    return [
        str(found["n"]),
        *("-" if share is None else f"{share:.2%}" for share in shares),
        "-" if tokens is None else f"{tokens:.0f}",
        "-" if seconds is None else f"{1000 * seconds:.1f}",
    ]


def metrics(report: Report) -> dict[str, float]:
    """The figures under the catalogue's names, by source."""
    from pipeline.tracking import for_source

    found = {}
    for source, family in report["families"].items():
        values = {
            "judge_agreement": family["own"]["agreement"],
            "judge_eval_false_yes": family["all"]["false_yes_rate"],
            "judge_eval_missed_yes": family["all"]["missed_yes_rate"],
            "judge_same_prefix": family["prefixes"]["same_prefix"],
            "judge_tokens_per_trace": family["prefixes"]["tokens_per_trace"],
            "judge_seconds_per_trace": family["prefixes"]["seconds_per_trace"],
        }
        found |= {for_source(name, source): value for name, value in values.items() if value is not None}
    return found


def write(report: Report, folder: Path) -> None:
    """report.json, report.txt, calibration.png and thresholds.png."""
    from pipeline.judge.plots import calibration_figure, threshold_figure
    from pipeline.tracking.figures import save_figure

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    (folder / "report.txt").write_text(table(report) + "\n")
    families = report["families"].items()
    said = {name: family["calibration"] for name, family in families}
    save_figure(calibration_figure(said), folder / "calibration.png")
    sweeps = {name: family["sweep"] for name, family in families}
    save_figure(threshold_figure(sweeps, report["threshold"]), folder / "thresholds.png")


def threshold_rows(report: Report) -> list[dict[str, object]]:
    """The threshold sweep of every family as one table."""
    return [{"family": name, **row} for name, family in report["families"].items() for row in family["sweep"]]
