"""What a judge is taught and tested with: sampled traces, cut, graded and labelled; each part made once a run.

Everything is kept in a folder named by a digest of the options and weights it depends on, so that a resumed run finds
it and a changed one makes its own.
"""

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from pipeline.config import RunConfig, UserError, write_whole
from pipeline.judge.altered import alter, shorten
from pipeline.judge.base import JudgeItem
from pipeline.judge.corpus import Cut, cut_traces, mismatched, split_by_problem
from pipeline.judge.labelling import Labelled, build_labeller, label
from pipeline.judge.lessons import write_lessons
from pipeline.judge.prompt import JudgePrompt
from pipeline.problems import Problem


@dataclass(frozen=True)
class JudgeData:
    """Cut traces: `train` to learn from, `validation` and `held_out` (by source) to test with; where lessons lie."""

    train: list[Cut]
    validation: list[Cut]
    held_out: dict[str, list[Cut]]
    folder: Path

    @property
    def lessons(self) -> Path:
        """The file of lessons."""
        return self.folder / "lessons.npz"


def gather(cfg: RunConfig, folder: Path) -> JudgeData:
    """Samples, cuts and grades, unless it was done. Ray must be connected."""
    from pipeline.loop.assemble import load_split

    place = folder / "data" / _digest(cfg)
    train, held_out = load_split(cfg, "train"), load_split(cfg, "held_out")
    shared = {problem.prompt for problem in train} & {problem.prompt for problem in held_out}
    if shared:
        raise UserError(f"{len(shared)} prompts are in problems.train and in held_out, such as {min(shared)!r}")
    cuts = _sampled(cfg, [*train, *held_out], place / "traces.jsonl")
    trained = {problem.id for problem in train}
    rest, validation = split_by_problem([c for c in cuts if c.problem.id in trained], cfg.judge_training.validation)
    by_source: dict[str, list[Cut]] = {}
    for cut in cuts:
        if cut.problem.id not in trained:
            by_source.setdefault(cut.problem.source, []).append(cut)
    if not rest:
        raise UserError("no sampled trace of problems.train ended its thinking; raise rollout.max_new_tokens")
    return JudgeData(rest, validation, by_source, place)


def _sampled(cfg: RunConfig, problems: Sequence[Problem], file: Path) -> list[Cut]:
    if file.is_file():
        return [_cut_of(line) for line in file.read_text().splitlines()]
    from pipeline.loop.assemble import load_tokenizer
    from pipeline.loop.evaluate import EvaluationEngine
    from pipeline.traces import Marks

    tokenizer = load_tokenizer(cfg.model.path)
    with bar("sampling", len(problems) * cfg.evaluation.samples) as count:
        with EvaluationEngine(cfg, cfg.model.path) as engine:
            traces = engine.sample(cfg, tokenizer, problems, count)
    marks = Marks.from_tokenizer(tokenizer, cfg.model.think_end)
    cuts, left_out = cut_traces(traces, {problem.id: problem for problem in problems}, tokenizer, marks)
    print(f"{len(cuts)} traces cut; {left_out} never ended their thinking or have no verdict", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, "".join(json.dumps(asdict(cut)) + "\n" for cut in cuts))
    return cuts


def _cut_of(line: str) -> Cut:
    raw = json.loads(line)
    return Cut(Problem(**raw["problem"]), raw["right"], tuple(raw["texts"]), raw["tokens"])


def make_lessons(cfg: RunConfig, data: JudgeData, prompt: JudgePrompt) -> dict[str, int]:
    """Labels what is learned from and writes the lessons, unless it was done; returns counts for the report."""
    counts_file = data.folder / "lessons.json"
    if data.lessons.is_file() and counts_file.is_file():
        return json.loads(counts_file.read_text())
    plan, rng = cfg.judge_training, random.Random(f"judge/{cfg.run.seed}")
    words = [piece for piece in prompt.tokenizer.get_vocab() if piece not in prompt.tokenizer.get_added_vocab()]
    words.sort()
    materials = [cut.material() for cut in data.train]
    altered = [alter(rng.choice(materials), rng, words) for _ in range(plan.altered)]
    short = [shorten(alter(rng.choice(materials), rng, words), rng) for _ in range(plan.short)]
    real = _labelled(cfg, questions(data.train), "labelling segments")
    real = _with_enough_no(cfg, real, data.train, rng)
    more = _labelled(cfg, altered, "labelling altered segments")
    few = _labelled(cfg, short, "labelling short segments")
    whole = Labelled(real.items + more.items, real.yes + more.yes, real.failed + more.failed)
    too_long = write_lessons(data.lessons, prompt, few, whole, cfg.judge.max_tokens)
    counts = {
        "segments": len(real.items),
        "segments_yes": sum(real.yes),
        "altered": len(more.items),
        "altered_yes": sum(more.yes),
        "short": len(few.items),
        "short_yes": sum(few.yes),
        "unlabelled": whole.failed + few.failed,
        "too_long": too_long,
    }
    counts_file.write_text(json.dumps(counts, indent=1))
    return counts


def questions(cuts: Sequence[Cut]) -> list[JudgeItem]:
    """Each distinct segment with its own problem's answer, in order."""
    return list(dict.fromkeys(item for cut in cuts for item in cut.items()))


def _with_enough_no(cfg: RunConfig, real: Labelled, cuts: Sequence[Cut], rng: random.Random) -> Labelled:
    """Right traces hold few segments that are not right; a share of questions beside another answer makes up for it."""
    share, no = cfg.judge_training.min_no_share, len(real.items) - sum(real.yes)
    missing = int((share * len(real.items) - no) / (1 - share)) if share < 1 else 0
    if missing <= 0:
        return real
    more = _labelled(cfg, mismatched(cuts, rng, missing), "labelling mismatched segments")
    return Labelled(real.items + more.items, real.yes + more.yes, real.failed + more.failed)


def _labelled(cfg: RunConfig, items: Sequence[JudgeItem], what: str) -> Labelled:
    with bar(what, len(items)) as count:
        return label(build_labeller(cfg.judge_training), items, cfg.judge.max_failure_rate, count)


def label_held_out(cfg: RunConfig, items: Sequence[JudgeItem]) -> Labelled:
    """Labels of questions to test with."""
    return _labelled(cfg, items, "labelling held-out segments")


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal; gives the function that moves it."""
    with tqdm(total=total, desc=what, unit="", disable=None, file=sys.stderr) as shown:
        yield shown.update


def _digest(cfg: RunConfig) -> str:
    from pipeline.weights import read_manifest

    plain = cfg.model_dump(mode="json")
    parts = {name: plain[name] for name in ("problems", "evaluation", "rollout")}
    read = ("labeller", "endpoint_model", "validation", "min_no_share", "altered", "short", "base")
    taught = {name: plain["judge_training"][name] for name in read}
    parts |= {"seed": cfg.run.seed, "model": read_manifest(cfg.model.path).digest, "taught": taught}
    parts["max_tokens"] = cfg.judge.max_tokens
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
