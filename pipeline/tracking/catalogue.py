"""Every number a run may log, with its unit and which way is better. Anything else is refused.

A metric has a full name with a group (`rollout/accuracy`, as charts are grouped by it in MLflow) and a short one
(`accuracy`); `metric_name` and `check` accept both. Where a number also makes sense for one problem source alone, the
group takes the source as a suffix: `rollout.chain_sum/accuracy` (see `for_source`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pipeline.config import nearest


class Better(StrEnum):
    """Which direction is an improvement."""

    UP = "up"
    DOWN = "down"
    NONE = "none"


class CatalogueError(ValueError):
    """A metric that the catalogue does not know, or a value that cannot be charted."""


@dataclass(frozen=True)
class Metric:
    """One number over training steps. `may_be_nan`: a non-finite value is itself news and must not stop the run;
    it is then kept out of the chart, counted and warned about."""

    name: str
    short: str
    unit: str
    better: Better
    description: str
    per_source: bool = False
    may_be_nan: bool = False


UP, DOWN, NONE = Better.UP, Better.DOWN, Better.NONE
_SOURCE = re.compile(r"[^A-Za-z0-9_-]")


def _group(group: str, *rows: tuple[str, str, str, Better, str], **flags: bool) -> list[Metric]:
    return [Metric(f"{group}/{leaf}", short, unit, better, text, **flags) for leaf, short, unit, better, text in rows]


_ALL: list[Metric] = [
    *_group(
        "rollout",
        ("accuracy", "accuracy", "share", UP, "Traces graded right, of those graded right or wrong"),
        ("unknown_rate", "unknown_rate", "share", DOWN, "Traces the grader could not decide"),
        ("tokens_mean", "tokens_mean", "tokens", DOWN, "Mean length of a response"),
        ("think_tokens_mean", "think_tokens_mean", "tokens", DOWN, "Mean tokens before the end-of-think token"),
        ("answer_tokens_mean", "answer_tokens_mean", "tokens", NONE, "Mean tokens after the end-of-think token"),
        ("truncated_rate", "truncated_rate", "share", DOWN, "Responses cut at the token limit"),
        ("nrp_share_tokens", "nrp_share_tokens", "share", UP, "Necessary tokens among the thinking tokens"),
        ("nrp_ratio_segments", "nrp_ratio_segments", "share", UP, "Necessary segments among the thinking segments"),
        per_source=True,
    ),
    *_group(
        "rollout",
        ("tokens_per_second", "tokens_per_second", "tokens/s", UP, "Sampled tokens a second, all engines"),
        ("traces_sampled", "traces_sampled", "traces", NONE, "Traces sampled for the step, kept or not"),
        ("tokens_sampled", "tokens_sampled", "tokens", NONE, "Response tokens sampled for the step, kept or not"),
        ("sampling_rounds", "sampling_rounds", "rounds", DOWN, "Rounds of sampling until the batch was full"),
    ),
    *_group(
        "curriculum",
        ("kappa", "kappa", "share", NONE, "Share of easy groups that the rule asks for"),
        ("kappa_skipped", "kappa_skipped", "batches", DOWN, "Batches so far without an NRP ratio to move kappa by"),
        ("nrp_ratio_batch", "nrp_ratio_batch", "share", UP, "NRP ratio by segments of the batch, which moves kappa"),
        ("easy_share_wanted", "easy_share_wanted", "share", NONE, "Easy groups wanted in the batch"),
        ("easy_share_realised", "easy_share_realised", "share", NONE, "Easy groups in the batch as trained"),
        ("easy_share_available", "easy_share_available", "share", NONE, "Easy groups among all groups sampled"),
        ("sigma_l", "sigma_l", "tokens", NONE, "Spread of the lengths on easy prompts"),
        ("kappa_sigma_l", "kappa_sigma_l", "tokens", NONE, "Share of easy groups in the batch times sigma_l"),
        ("groups_kept", "groups_kept", "groups", NONE, "Groups that were trained on"),
        ("groups_dropped_all_wrong", "groups_dropped_all_wrong", "groups", DOWN, "Dropped: no trace right"),
        ("groups_dropped_easy_surplus", "groups_dropped_easy_surplus", "groups", DOWN, "Dropped: easy, over quota"),
        ("groups_dropped_unknown", "groups_dropped_unknown", "groups", DOWN, "Dropped: too few verdicts"),
        ("groups_dropped_overflow", "groups_dropped_overflow", "groups", DOWN, "Dropped: batch already full"),
    ),
    *_group(
        "judge",
        ("detector_misses", "detector_misses", "share", DOWN, "Right traces in which no segment was judged right"),
        ("calls", "judge_calls", "segments", NONE, "Segments judged"),
        ("cache_hits", "judge_cache_hits", "segments", UP, "Segments answered from the cache"),
        ("failures", "judge_failures", "segments", DOWN, "Segments the judge failed on; counted as no"),
        ("overlong", "judge_overlong", "segments", DOWN, "Segments over judge.max_tokens, not judged; counted as no"),
        ("first_yes", "judge_first_yes", "share", NONE, "Right traces of several segments whose first is judged right"),
        ("false_yes", "judge_false_yes", "share", DOWN, "Control questions (another problem's answer) judged right"),
        ("absurd", "judge_absurd", "calls", DOWN, "Calls with judge.max_miss_rate or max_false_yes_rate exceeded"),
        ("grader_unknown", "grader_unknown", "traces", DOWN, "Traces the grader failed on; masked out of the loss"),
    ),
    *_group(
        "judge_eval",
        ("agreement", "judge_agreement", "share", UP, "Held-out segments judged as the labeller does"),
        ("false_yes", "judge_eval_false_yes", "share", DOWN, "Judged right, of those the labeller says no to"),
        ("missed_yes", "judge_eval_missed_yes", "share", DOWN, "Judged wrong, of those the labeller says yes to"),
        ("same_prefix", "judge_same_prefix", "share", UP, "Right traces with the labeller's necessary prefix"),
        ("tokens_per_trace", "judge_tokens_per_trace", "tokens", DOWN, "Judge tokens read for the prefix of a trace"),
        ("seconds_per_trace", "judge_seconds_per_trace", "s", DOWN, "Judge seconds for the prefix of a trace"),
        per_source=True,
    ),
    *_group(
        "train",
        ("loss", "loss", "nats", NONE, "Policy loss, mean over loss tokens"),
        ("grad_norm", "grad_norm", "norm", NONE, "Gradient norm before clipping"),
        ("clip_fraction", "clip_fraction", "share", NONE, "Tokens whose ratio was clipped"),
        ("importance_weight_mean", "importance_weight_mean", "1", NONE, "Mean truncated importance weight"),
        ("entropy_estimate", "entropy_estimate", "nats", NONE, "Mean negative log-probability of sampled tokens"),
        may_be_nan=True,
    ),
    *_group(
        "train",
        ("lr", "lr", "1", NONE, "Learning rate"),
        ("loss_tokens", "loss_tokens", "tokens", NONE, "Tokens that carry loss"),
        ("reward_mean", "reward_mean", "reward", UP, "Mean reward of a token"),
        ("advantage_abs_mean", "advantage_abs_mean", "1", NONE, "Mean absolute advantage of a token"),
    ),
    *_group(
        "parity",
        ("mean_abs", "parity_mean_abs", "nats", DOWN, "Engine against learner, mean |log-prob difference|"),
        ("max_abs", "parity_max_abs", "nats", DOWN, "Engine against learner, largest |log-prob difference|"),
        may_be_nan=True,
    ),
    *_group(
        "version",
        ("policy", "policy_version", "version", NONE, "Weights the batch was sampled from, newest"),
        ("staleness_max", "staleness_max", "versions", DOWN, "Oldest token in the batch, in versions"),
        ("staleness_violations", "staleness_violations", "traces", DOWN, "Traces staler than allowed; must be 0"),
    ),
    *_group(
        "seconds",
        *(
            (part, f"seconds_{part}", "s", DOWN, text)
            for part, text in {
                "rollout": "Sampling",
                "grade": "Grading",
                "judge": "Finding the necessary prefix",
                "train": "Forward, backward and optimiser",
                "publish": "Writing and handing on a snapshot",
                "swap": "Loading new weights into the engines",
                "step": "The whole step",
            }.items()
        ),
    ),
    *_group(
        "ledger",
        ("issued", "ledger_issued", "problems", NONE, "Problems out for sampling"),
        ("trained", "ledger_trained", "problems", NONE, "Problems trained, since the start of the run"),
        ("dropped", "ledger_dropped", "problems", NONE, "Problems dropped with a reason, since the start of the run"),
    ),
    *_group(
        "eval",
        ("accuracy", "eval_accuracy", "share", UP, "Held-out answers right"),
        ("unknown_rate", "eval_unknown_rate", "share", DOWN, "Held-out answers the grader could not decide"),
        ("tokens_mean", "eval_tokens_mean", "tokens", DOWN, "Mean length of a held-out response"),
        ("nrp_share", "eval_nrp_share", "share", UP, "Necessary tokens among the thinking tokens, held out"),
        ("tokens_per_correct", "eval_tokens_per_correct", "tokens", DOWN, "Tokens spent for one right answer"),
        ("truncated_rate", "eval_truncated_rate", "share", DOWN, "Held-out responses cut at the token limit"),
        per_source=True,
    ),
    *_group(
        "endpoint",
        ("version", "endpoint_version", "version", NONE, "Weights the endpoint answers with"),
        ("swap_seconds", "endpoint_swap_seconds", "s", DOWN, "Hot swap of the endpoint, from order to confirmation"),
    ),
    *_group(
        "warm_start",
        ("loss", "supervised_loss", "nats", DOWN, "Cross-entropy a token, supervised"),
        may_be_nan=True,
    ),
    *_group(
        "warm_start",
        ("lr", "supervised_lr", "1", NONE, "Learning rate"),
        ("tokens", "supervised_tokens", "tokens", NONE, "Tokens seen since the start"),
        ("seconds", "supervised_seconds", "s", DOWN, "A supervised step"),
    ),
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
SHORT: dict[str, Metric] = {metric.short: metric for metric in _ALL}


def _find(name: str) -> tuple[Metric, str] | None:
    """The metric and its full name, source suffix kept; None where the catalogue has no such metric."""
    if metric := METRICS.get(name) or SHORT.get(name):
        return metric, metric.name
    group, _, leaf = name.partition("/")
    base, dot, source = group.partition(".")
    metric = METRICS.get(f"{base}/{leaf}")
    if metric and metric.per_source and dot and source and not _SOURCE.search(source):
        return metric, name
    return None


def lookup(name: str) -> Metric:
    """The metric of a full, short or per-source name; CatalogueError with the nearest name otherwise."""
    found = _find(name)
    if found is None:
        raise CatalogueError(f"no metric is called '{name}'{nearest(name, [*METRICS, *SHORT])}; see catalogue.py")
    return found[0]


def metric_name(name: str) -> str:
    """The full name under which MLflow keeps a metric: `metric_name("kappa")` is `curriculum/kappa`."""
    lookup(name)
    found = _find(name)
    assert found is not None  # lookup has raised otherwise
    return found[1]


def for_source(name: str, source: str) -> str:
    """The name of a metric for one problem source: `for_source("accuracy", "chain_sum")` is
    `rollout.chain_sum/accuracy`. Signs that MLflow or a chart group would trip over become `_`."""
    metric = lookup(name)
    if not metric.per_source:
        raise CatalogueError(f"metric '{metric.name}' is not kept for each source; log it for the whole run")
    group, _, leaf = metric.name.partition("/")
    return f"{group}.{_SOURCE.sub('_', source) or '_'}/{leaf}"


def check(metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Full names and floats of a step: (finite ones, non-finite ones of metrics that may be).

    Raises CatalogueError for an unknown name, for one metric given twice (short and full), for a value that is no
    number, and for NaN or infinity where the metric does not allow it.
    """
    finite: dict[str, float] = {}
    strange: dict[str, float] = {}
    for key, raw in metrics.items():
        name, value = metric_name(key), _number(key, raw)
        if name in finite or name in strange:
            raise CatalogueError(f"metric '{name}' is given twice in a step; use its full or its short name, not both")
        if math.isfinite(value):
            finite[name] = value
        elif lookup(name).may_be_nan:
            strange[name] = value
        else:
            raise CatalogueError(f"metric '{name}' is {value}; leave it out of a step in which it is not defined")
    return finite, strange


def _number(key: str, raw: object) -> float:
    try:
        return float(raw)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CatalogueError(f"metric '{key}' has the value {raw!r}, which is no number") from None
