"""Measure a model: `python -m jobs.evaluate --config FILE --model FOLDER|NAME@ALIAS|URL [--suite NAME]`.

Reports accuracy, pass@k, tokens, the share of thinking up to the first right answer (NRP), tokens per correct answer,
accuracy under token budgets and by difficulty. Samples are kept one by one: with the same run.name an interrupted
evaluation goes on where it stopped.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs._cli import run_command, whole_number
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError, check_model_folder, resolve_path, results_root

if TYPE_CHECKING:
    from jobs._evaluation import Asked, Evaluation
    from pipeline.evaluation.samples import SampleLedger

SAMPLES, REPORT = "samples.jsonl", "evaluation.json"


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints the figures and writes them to the run's folder (and `--out`); 1 when requests failed."""
    from jobs import _evaluation
    from pipeline.evaluation.model import Endpoint, open_model, probe
    from pipeline.evaluation.report import check_base
    from pipeline.tracking import Tracker

    evaluation = _evaluation.open_evaluation(named(cfg, "evaluate"), args)
    cfg, folder = evaluation.cfg, run_folder(evaluation.cfg)
    base, identity = _read_base(args.base), evaluation.identity({})
    if base is not None:
        check_base(base, identity, args.base)
    model = open_model(args.model or cfg.model.path, cfg, results_root(cfg) / "models", args.model_id)
    served = isinstance(model, Endpoint)
    tokenizer_folder = str(check_model_folder(cfg.model.path)) if served else model.folder
    if served and not (folder / SAMPLES).exists():
        probe(model, cfg.evaluation.probe_timeout_s)
    tracker = Tracker.from_config(cfg)
    with held(folder):
        return _evaluate(evaluation, args, folder, base, model, tokenizer_folder, tracker)


def _evaluate(
    evaluation: "Evaluation",
    args: argparse.Namespace,
    folder: Path,
    base: dict | None,
    model: Any,
    tokenizer_folder: str,
    tracker: Any,
) -> int:
    from tqdm import tqdm

    from jobs import _evaluation
    from jobs._measure import Scorer
    from pipeline.evaluation.model import Endpoint, probe
    from pipeline.evaluation.samples import SampleLedger
    from pipeline.judge import JudgeFailure
    from pipeline.loop.assemble import load_tokenizer
    from pipeline.loop.remote import RunFailed

    cfg, served = evaluation.cfg, isinstance(model, Endpoint)
    ledger = SampleLedger(folder / SAMPLES)
    if served and ledger.identity and _evaluation.lacking(evaluation, ledger):
        probe(model, cfg.evaluation.probe_timeout_s)
    scorer = Scorer(cfg, load_tokenizer(tokenizer_folder), evaluation.problems, evaluation.kind)
    kept = len(evaluation.wanted) - len(_evaluation.lacking(evaluation, ledger))
    print(f"run {cfg.run.name} in {folder}: {len(evaluation.wanted)} samples, {kept} of them there already", flush=True)
    ask: Any = _evaluation.ask_endpoint if served else _evaluation.ask_engine
    try:
        with tqdm(total=len(evaluation.wanted), initial=kept, unit="reply", disable=None) as bar:
            identity, asked = ask(evaluation, model, ledger, scorer, bar.update)
    except (RunFailed, JudgeFailure) as error:
        print(f"error: {error}; run again with run.name={cfg.run.name} to go on", file=sys.stderr)
        return 1
    report = _report(evaluation, ledger, identity, asked, base)
    for path in (folder / REPORT, *([Path(args.out)] if args.out else [])):
        path.write_text(json.dumps(report, indent=2), encoding="utf-8")
    print(_text(report, evaluation), flush=True)
    failed = bool(asked.failures or report["missing"])
    _record(tracker, evaluation, report, getattr(model, "run_id", None), failed)
    return 1 if failed else 0


def _record(tracker: Any, evaluation: "Evaluation", report: dict[str, Any], parent: str | None, failed: bool) -> None:
    """The figures as an MLflow run of the evaluation's name; below the training run that made the weights, if known."""
    from pipeline.tracking import PARENT
    from pipeline.tracking.evaluation_record import keep_evaluation

    cfg = evaluation.cfg
    tags = {"kind": "evaluation", "suite": evaluation.name, **({PARENT: parent} if parent else {})}
    run_id = tracker.start(str(cfg.run.name), cfg.model_dump(mode="json"), tags)
    status = "FAILED"
    try:
        keep_evaluation(tracker, report)
        status = "FAILED" if failed else "FINISHED"
    finally:
        tracker.finish(status)
    print(f"MLflow run {run_id}", flush=True)


def _report(
    evaluation: "Evaluation", ledger: "SampleLedger", identity: Any, asked: "Asked", base: dict | None
) -> dict[str, Any]:
    from pipeline.evaluation.figures import default_budgets
    from pipeline.evaluation.report import build_report

    cfg = evaluation.cfg
    keys = [(problem.id, sample) for problem, sample in evaluation.wanted]
    scored = [ledger.samples[key] for key in keys if key in ledger.samples]
    budgets = cfg.evaluation.budgets or default_budgets(cfg.rollout.max_new_tokens)
    found = build_report(identity, evaluation.problems, cfg.evaluation.samples, scored, budgets, base)
    weights = identity["model"].get("weights")
    return {
        **found,
        "run": cfg.run.name,
        "protocol_deviations": evaluation.deviations(),
        "requests": asked.requests,
        "failures": asked.failures,
        "torn_lines": ledger.torn,
        "other_weights": {mark: count for mark, count in ledger.marks.items() if mark and mark != weights},
    }


def _text(report: dict[str, Any], evaluation: "Evaluation") -> str:
    from jobs._measure import table
    from pipeline.evaluation.report import report_text

    columns = {"all": report["all"], **report["by_source"]}
    lines = [f"\n{evaluation.name}: {len(evaluation.problems)} problems x {report['samples_a_problem']} samples"]
    lines += [table(columns), report_text(report)]
    if report["protocol_deviations"]:
        lines.append(f"not the suite's protocol: {', '.join(report['protocol_deviations'])}")
    if report["other_weights"]:
        weights = report["identity"]["model"]["weights"]
        lines.append(f"other weights than {weights} made replies among these: {report['other_weights']}")
    if report["torn_lines"]:
        lines.append(f"{report['torn_lines']} line of an earlier call was torn and is sampled anew")
    if report["failures"]:
        lines.append(f"{len(report['failures'])} of {report['requests']} requests failed: {report['failures'][0]}")
    if report["missing"]:
        lines.append(f"{report['missing']} samples are missing; run.name={report['run']} goes on with them")
    return "\n".join(lines)


def _read_base(path: str | None) -> dict | None:
    if path is None:
        return None
    try:
        found = json.loads(resolve_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--base {path} cannot be read ({error}); give the evaluation.json of another run") from None
    return found if isinstance(found, dict) else {}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model folder, NAME@ALIAS in the registry, or a URL (default: model.path)")
    parser.add_argument("--model-id", help="the name the endpoint serves (default: serve.model_id)")
    parser.add_argument("--suite", help="a benchmark instead of the config's problems: tiny, aime24, math500, ...")
    parser.add_argument(
        "--suite-file", metavar="FILE", help="the benchmark's rows, jsonl or parquet, instead of the hub"
    )
    parser.add_argument("--split", choices=["held_out", "train"], help="of the config's problems (default: held_out)")
    parser.add_argument(
        "--limit", type=whole_number("--limit"), metavar="N", help="only N problems, taken at even distances"
    )
    parser.add_argument("--base", metavar="FILE", help="another run's evaluation.json, to score against (AES)")
    parser.add_argument("--out", help="one more file for the figures, as JSON")


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    from jobs._evaluation import asked_for

    cfg, suite = asked_for(cfg, args)
    _read_base(args.base)
    split = args.split or "held_out"
    where = args.model or cfg.model.path
    if suite is not None:
        problems = f"the problems of {suite.name}, from {args.suite_file or suite.hub or 'the tiny world'}"
    else:
        sizes = [source.size for source in getattr(cfg.problems, split)]
        count = "all" if None in sizes else sum(size for size in sizes if size)
        problems = f"{count} problems of problems.{split}"
    limit = f", {args.limit} of them at most" if args.limit else ""
    options = cfg.evaluation
    return (
        f"{problems}{limit}, x {options.samples} samples\n"
        f"temperature {options.temperature:g}, top_p {options.top_p:g}, up to {options.max_new_tokens} new tokens\n"
        f"on {'the endpoint' if where.startswith('http') else 'one rollout engine with'} {where}"
    )


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("evaluate", __doc__, main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
