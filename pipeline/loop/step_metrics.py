"""The numbers of one step, from its groups. Pure; names are the catalogue's short ones."""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.curriculum import DropReason, Filled
from pipeline.evaluation import nrp_share, ratio, summarise
from pipeline.loop.admission import staleness
from pipeline.loop.scoring import ScoredGroup, Signals
from pipeline.tracking import for_source

Numbers = dict[str, float]
PER_SOURCE = ("accuracy", "tokens_mean", "nrp_share_tokens")


def present(numbers: dict[str, float | None]) -> Numbers:
    """Without the figures that have no denominator this step."""
    return {name: float(value) for name, value in numbers.items() if value is not None}


def segment_ratio(groups: Sequence[ScoredGroup]) -> float | None:
    """R_m: mean share of necessary segments over right traces with a detected prefix (as the released code does)."""
    ratios = [t.segment_ratio for g in groups for t in g.traces if t.correct and t.segment_ratio is not None]
    return statistics.fmean(ratios) if ratios else None


def length_spread(groups: Sequence[ScoredGroup]) -> float | None:
    """sigma_L of Theorem 1: the standard deviation of response length on easy prompts, averaged over them."""
    spreads = [statistics.pstdev([t.length for t in g.traces]) for g in groups if g.traces and all(g.verdicts)]
    return statistics.fmean(spreads) if spreads else None


def rollout_metrics(sampled: Sequence[ScoredGroup]) -> Numbers:
    """Over every group sampled for the step, kept or not; accuracy, tokens and NRP share also for each source."""
    traces = [trace for group in sampled for trace in group.traces]
    numbers = _over(sampled)
    numbers |= {"traces_sampled": len(traces), "tokens_sampled": sum(trace.length for trace in traces)}
    for source in sorted({group.problem.source for group in sampled}):
        own = _over([group for group in sampled if group.problem.source == source])
        numbers |= {for_source(name, source): own[name] for name in PER_SOURCE if name in own}
    return numbers


def _over(sampled: Sequence[ScoredGroup]) -> Numbers:
    traces = [trace for group in sampled for trace in group.traces]
    summary = summarise(traces, intervals=False)
    return present(
        {
            "accuracy": summary.accuracy,
            "unknown_rate": summary.unknown_rate,
            "tokens_mean": summary.tokens_mean,
            "think_tokens_mean": summary.think_tokens_mean,
            "answer_tokens_mean": statistics.fmean(t.length - t.answer_start for t in traces) if traces else None,
            "truncated_rate": summary.truncated_rate,
            "nrp_share_tokens": nrp_share(traces),
            "nrp_ratio_segments": segment_ratio(sampled),
            "detector_misses": summary.detector_misses,
            "grader_unknown": sum(t.correct is None for t in traces),
        }
    )


def curriculum_metrics(batch: Filled[ScoredGroup], kappa: float | None, easy_share: float, skipped: int = 0) -> Numbers:
    """What the curriculum asked for (nothing where kappa is None) and what the batch became; `skipped` counts the
    batches so far that had no NRP ratio to move kappa by."""
    spread = length_spread(batch.groups)
    return present(
        {
            "kappa": kappa,
            "kappa_skipped": skipped,
            "nrp_ratio_batch": segment_ratio(batch.groups),
            "easy_share_wanted": None if batch.easy_wanted is None else batch.easy_wanted / batch.wanted,
            "easy_share_realised": batch.realised_share,
            "easy_share_available": easy_share,
            "sigma_l": spread,
            "kappa_sigma_l": None if spread is None else batch.realised_share * spread,
            "groups_kept": len(batch.groups),
            "groups_dropped_all_wrong": batch.drops[DropReason.ALL_WRONG],
            "groups_dropped_easy_surplus": batch.drops[DropReason.EASY_SURPLUS],
            "groups_dropped_unknown": batch.drops[DropReason.UNKNOWN],
            "groups_dropped_overflow": batch.drops[DropReason.OVERFLOW],
            "sampling_rounds": batch.rounds,
        }
    )


def signal_metrics(groups: Sequence[ScoredGroup], rewards: Sequence[Signals], advantages: Sequence[Signals]) -> Numbers:
    """Mean reward and mean absolute advantage over the response tokens of the batch."""

    def over_tokens(blocks: Sequence[Signals]) -> Signals:
        pairs = [pair for g, b in zip(groups, blocks, strict=True) for pair in zip(g.traces, b, strict=True)]
        rows = [row[: trace.length] for trace, row in pairs]
        return np.concatenate(rows) if rows else np.zeros(0)

    reward, advantage = over_tokens(rewards), over_tokens(advantages)
    if not reward.size:
        return {}
    return {"reward_mean": float(reward.mean()), "advantage_abs_mean": float(np.abs(advantage).mean())}


def judge_counts(new: Mapping[str, int]) -> Numbers:
    """A step's share of the judge's counts (see `JudgeActor.counters`); counts that are missing are 0."""
    names = {"calls": "judged", "cache_hits": "cache_hits", "failures": "failures", "overlong": "overlong"}
    shares = {"first_yes": ("first_yes", "several"), "false_yes": ("false_yes", "controls")}
    return present(
        {
            **{f"judge_{name}": new.get(key, 0) for name, key in (names | {"absurd": "absurd"}).items()},
            **{f"judge_{name}": ratio(new.get(part, 0), new.get(of, 0)) for name, (part, of) in shares.items()},
        }
    )


LEARNER = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "lr": "lr",
    "clip_fraction": "clip_fraction",
    "importance_mean": "importance_weight_mean",
    "entropy": "entropy_estimate",
    "tokens": "loss_tokens",
    "parity_mean": "parity_mean_abs",
    "parity_max": "parity_max_abs",
    "seconds_train": "seconds_train",
}


def learner_metrics(reported: dict[str, float]) -> Numbers:
    """What the learner reports, under the catalogue's names."""
    return {name: reported[key] for key, name in LEARNER.items() if key in reported}


def version_metrics(groups: Sequence[ScoredGroup], step: int, max_staleness: int) -> Numbers:
    """Which weights made the batch, and whether any trace is staler than allowed (must be 0)."""
    spans = [[span.version for span in t.trace.versions] for g in groups for t in g.traces if t.trace.versions]
    oldest = [min(versions) for versions in spans]
    return {
        "policy_version": max((max(versions) for versions in spans), default=step),
        "staleness_max": max((staleness(step, version) for version in oldest), default=0),
        "staleness_violations": sum(staleness(step, version) > max_staleness for version in oldest),
    }
