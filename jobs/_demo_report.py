"""What the demo found: a table for people, JSON for programs, artifacts for MLflow."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from jobs._demo_page import keep_page
from jobs._judge_agreement import agreement_line, judge_agreement
from jobs._measure import Measured, table
from jobs._traffic import Trickle
from pipeline.config import RunConfig
from pipeline.evaluation import ScoredTrace
from pipeline.loop.examples import view
from pipeline.loop.scoring import ScoredGroup
from pipeline.tracking import TraceView, Tracker, comparison_html, comparison_text

Report = dict[str, Any]
FIGURES = ("accuracy", "tokens_mean", "nrp_share", "tokens_per_correct", "n")


def figures(measured: Measured) -> Report:
    """The summary's figures, and those of each source."""
    summary = measured.summary.to_dict()
    by_source = {
        source: {name: found.to_dict()[name] for name in FIGURES} for source, found in measured.by_source().items()
    }
    return {**summary, "by_source": by_source}


def build(
    cfg: RunConfig,
    before: Measured,
    after: Measured,
    trickle: Trickle,
    result: Report,
    seconds: dict[str, float],
    urls: dict[str, str],
    tokenizer: Any,
) -> Report:
    """The report. `requests` and `failed_requests` count all sent: both measurements and the trickle."""
    swaps = [event for event in result["publications"] if event.get("swapped")]
    failures = [*before.failures, *after.failures, *trickle.failures]
    return {
        "before": figures(before),
        "after": figures(after),
        "requests": before.requests + after.requests + trickle.sent,
        "requests_during_training": trickle.sent,
        "failed_requests": len(failures),
        "failures": failures[:20],
        "swaps": len(swaps),
        "not_served": [event for event in result["publications"] if not event.get("swapped")],
        "swap_seconds": [round(float(event["seconds"]), 2) for event in swaps],
        "steps": result["steps"],
        "seconds": seconds,
        "urls": urls,
        "versions": {
            "before": before.versions,
            "during": dict(sorted(trickle.versions.items())),
            "after": after.versions,
            "trained": result["version"],
        },
        "ledger": result["ledger"],
        "judge_agreement": judge_agreement(
            cfg.judge, [*before.scored, *after.scored], {**before.problems, **after.problems}, tokenizer
        ),
        "seed": cfg.run.seed,
        "model_id": cfg.serve.model_id,
        "mlflow_run_id": result["mlflow_run_id"],
        "page": result["report"],
    }


def complaints(report: Report) -> list[str]:
    """What the demo promises and did not keep; empty when all is well."""
    found = []
    if report["failed_requests"]:
        found.append(f"{report['failed_requests']} of {report['requests']} requests, first: {report['failures'][:1]}")
    found += [f"version {event['version']} was not served: {event['reason']}" for event in report["not_served"]]
    if report["versions"]["after"] != [report["versions"]["trained"]]:
        found.append(f"the endpoint answers with versions {report['versions']['after']}, not the trained one")
    return found


def example_pairs(before: Measured, after: Measured, tokenizer: Any) -> list[tuple[TraceView, TraceView]]:
    """One problem of each source before and after: right both times, with the most redundant tokens before."""

    def redundant(scored: ScoredTrace) -> int:
        return scored.think_length - (scored.prefix_length or scored.think_length)

    later = {t.trace.problem_id: t for t in after.scored if t.correct}
    pairs: dict[str, tuple[ScoredTrace, ScoredTrace]] = {}
    for scored in sorted((t for t in before.scored if t.correct), key=redundant):
        problem = before.problems[scored.trace.problem_id]
        if problem.id in later:
            pairs[problem.source] = (scored, later[problem.id])

    def shown(scored: ScoredTrace) -> TraceView:
        problem = before.problems[scored.trace.problem_id]
        return view(ScoredGroup(problem.id, problem, (scored,)), scored, tokenizer)

    return [(shown(one), shown(two)) for one, two in pairs.values()]


def text(report: Report, before: Measured, after: Measured, tokenizer: Any, pages: list[Path]) -> str:
    """The report for a terminal; `pages` as from `write`."""
    was, now = report["before"]["tokens_mean"], report["after"]["tokens_mean"]
    earlier, later = before.by_source(), after.by_source()
    change = "not measured" if was is None or now is None else f"{1 - now / was:.0%} fewer"
    parts = [
        "\n== Before and after, through the endpoint",
        table({"before": before.summary, "after": after.summary}),
        *(f"\n{source}\n" + table({"before": earlier[source], "after": found}) for source, found in later.items()),
        f"\ntokens a reply: {change}",
        f"requests: {report['requests']} sent ({report['requests_during_training']} while training), "
        f"{report['failed_requests']} failed, over {report['swaps']} hot swaps "
        f"of {', '.join(f'{seconds:g} s' for seconds in report['swap_seconds'])}",
        "replies while training: "
        + ", ".join(f"{count} from version {version}" for version, count in report["versions"]["during"].items()),
        *filter(None, [agreement_line(report["judge_agreement"])]),
        "\n== The same problem before and after (redundant thinking dimmed)",
        *(comparison_text(one, two) for one, two in example_pairs(before, after, tokenizer)),
        "\n== To look at in a browser (in MLflow: artifacts of the run)",
        f"   the run       {report['page']}",
        *(f"   before/after  {page}" for page in pages),
        *(
            f"\n== Ask it yourself\n   {curl(url, report['model_id'], next(iter(after.problems.values())).prompt)}"
            for name, url in report["urls"].items()
            if name == "endpoint"
        ),
        "\n== Still running (make down ends them)",
        *(f"   {name:10} {url}" for name, url in report["urls"].items()),
        "   seconds: " + ", ".join(f"{phase} {seconds:.0f}" for phase, seconds in report["seconds"].items()),
    ]
    return "\n".join(parts)


def curl(endpoint: str, model_id: str, question: str) -> str:
    """A command that asks the endpoint one question."""
    body = {"model": model_id, "messages": [{"role": "user", "content": question}], "max_tokens": 384}
    headers = "-H 'Content-Type: application/json'"
    return f"curl -s {endpoint}/chat/completions {headers} -d {shlex.quote(json.dumps(body))}"


def write(
    report: Report,
    before: Measured,
    after: Measured,
    tokenizer: Any,
    folder: Path,
    tracking_uri: str,
    run_id: str,
    cfg: RunConfig,
) -> list[Path]:
    """Writes report.json and the comparison pages to `folder`, and both to the MLflow run; also the run's page anew,
    with what was measured through the endpoint. `cfg` has the run's name. Returns the comparison pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=2))
    pages = []
    for number, (one, two) in enumerate(example_pairs(before, after, tokenizer)):
        pages.append(folder / f"before_after_{number}.html")
        pages[-1].write_text(comparison_html(one, two), encoding="utf-8")
    tracker = Tracker(tracking_uri, cfg.tracking.experiment, cfg.tracking.registered_model)
    tracker.attach(run_id)
    kept = keep_page(cfg, Path(report["page"]).parent, before, after, tokenizer, tracker)
    if not (tracker.log_folder(folder, "demo") and kept):
        print("the report could not be kept in MLflow; it is in", folder, file=sys.stderr)
    return pages
