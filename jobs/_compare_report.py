"""What a comparison writes: compare.json, a table, figures, the MLflow artifacts and the Markdown page."""

import json
from pathlib import Path
from typing import Any

from jobs._compare_arm import Place
from jobs._compare_arms import Arm
from pipeline.config import RunConfig, config_digest
from pipeline.evaluation import comparison
from pipeline.evaluation.comparison_text import markdown, table

Found = dict[str, Any]
IMAGES = "images"  # beside the Markdown page


def build(
    cfg: RunConfig,
    arms: list[Arm],
    seeds: list[int],
    model_digest: str,
    places: list[Place],
    records: dict[str, dict],
    failures: list[dict],
) -> Found:
    """The comparison of the records there are. A seed whose start model was not measured has no score: left out."""
    started = {at.seed for at in places if at.arm is None and at.name in records}
    usable = [records[at.name] for at in places if at.name in records and at.seed in started]
    about = {
        "name": cfg.run.name,
        "config_digest": config_digest(cfg),
        "model_digest": model_digest,
        "arms_asked": [arm.name for arm in arms],
        "seeds": seeds,
        "steps": cfg.run.steps,
        "prompts_per_step": cfg.rollout.prompts_per_step,
        "group_size": cfg.rollout.group_size,
        "curriculum": cfg.curriculum.model_dump(mode="json", exclude_defaults=True),
        "held_out": {"problems": sum(s.size or 0 for s in cfg.problems.held_out), "samples": cfg.evaluation.samples},
        "trained_on": sorted({source.name for source in cfg.problems.train}),
        "traces_per_arm": cfg.run.steps * cfg.rollout.prompts_per_step * cfg.rollout.group_size,
    }
    return comparison.compare(usable, about, failures)


def complaints(found: Found) -> list[str]:
    """Why the comparison does not stand; empty when it does."""
    failed = [f"{f['arm']} (seed {f['seed']}): {f['why']}" for f in found["failures"]]
    return [*failed, *found["budget"]["complaints"]]


def arm_line(record: dict) -> str:
    """One finished arm in one line."""
    measured, seconds = record["measured"], record["seconds"]

    def shown(name: str, form: str) -> str:
        return "-" if measured[name] is None else format(measured[name], form)

    took = ", ".join(f"{what} {value:.0f} s" for what, value in seconds.items())
    return (
        f"accuracy {shown('accuracy', '.3f')}, tokens {shown('tokens_mean', '.1f')}, "
        f"NRP {shown('nrp_share', '.3f')} ({took})"
    )


def write(found: Found, folder: Path, tracker: Any, docs: str | None) -> None:
    """Writes compare.json, the table and the figures to `folder` and to the comparison's MLflow run; prints the table;
    writes the page `docs` with its images beside it."""
    (folder / "compare.json").write_text(json.dumps(found, indent=1))
    text = table(found)
    (folder / "compare.txt").write_text(text + "\n")
    print(f"\n{text}\n\ncompare.json and figures: {folder}", flush=True)
    images = _figures(found, folder / "figures")
    tracker.log_file(folder / "compare.json")
    tracker.log_file(folder / "compare.txt")
    tracker.log_folder(folder / "figures", "figures")
    if docs:
        page = Path(docs)
        (page.parent / IMAGES).mkdir(parents=True, exist_ok=True)
        for image in images:
            (page.parent / IMAGES / f"compare_{image.name}").write_bytes(image.read_bytes())
        page.write_text(markdown(found, {image.stem: f"{IMAGES}/compare_{image.name}" for image in images}))
        print(f"results written to {page}", flush=True)


def _figures(found: Found, folder: Path) -> list[Path]:
    from pipeline.tracking.comparison_figures import comparison_figures
    from pipeline.tracking.figures import save_figure

    folder.mkdir(parents=True, exist_ok=True)
    return [save_figure(figure, folder / f"{name}.png") for name, figure in comparison_figures(found).items()]
