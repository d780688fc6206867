"""From measured figures to levers in order: rules, one function for each situation. Pure.

A rule speaks only where its figures were measured. Each advice names what is behind it, so that nobody takes a guess
for a figure of this endpoint: `tried` (it ran with this project, on CPU and with small models; how much it gains is
yours to measure), `computed` (arithmetic anyone can redo), `not tried` (vLLM documents it).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config import RunConfig
from serve.advice_profile import Profile

TRIED, COMPUTED, UNTRIED = "tried", "computed", "not tried"
OVERTHINKING, FULL_CACHE, SHARED, LONG_CONTEXT = 0.3, 0.9, 0.3, 262_144
LOW_BATCH, HIGH_BATCH, LONG_PROMPT, BURST, LATE = 0.25, 0.75, 4.0, 3.0, 0.05
STEP_TOKENS = 16_384
DRAM_GIB = 4.0  # to begin with


@dataclass(frozen=True)
class Advice:
    """One lever. `patch` are overrides of a config (empty: nothing here sets it), `evidence` one of the three words."""

    situation: str
    lever: str
    patch: tuple[str, ...]
    why: str
    evidence: str
    precondition: str
    verify: str


Rule = Callable[[Profile, RunConfig], Iterator[Advice]]


def advise(profile: Profile, cfg: RunConfig) -> list[Advice]:
    """The levers for `profile` on the endpoint of `cfg`, the first to pull first; empty where nothing is amiss."""
    return [advice for rule in RULES for advice in rule(profile, cfg)]


def long_context(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """A request of hundreds of thousands of tokens: it fits or it does not, before anything else matters."""
    tokens = p.context_tokens or cfg.engine.max_model_len
    if tokens < LONG_CONTEXT:
        return
    about = ("long context", f"requests of {tokens:,} tokens")
    yield Advice(
        about[0], "plan the memory", (), f"{about[1]}: the KV cache decides whether one fits at all", COMPUTED,
        "the model's config.json", f"python -m jobs.plan memory --context {tokens}",
    )  # fmt: skip
    yield Advice(
        about[0], "a model that compresses its KV cache", (),
        "a layer of DeepSeek-V3 keeps 576 numbers a token, one with eight heads of 128 keeps 2,048", COMPUTED,
        "such a model answers as well", "jobs.plan memory for both, then jobs.evaluate",
    )  # fmt: skip


def cache_pressure(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """A full cache, or requests thrown out of it."""
    if (p.kv_usage or 0) < FULL_CACHE and not p.preemptions:
        return
    name, seqs = "KV cache full", max(1, cfg.engine.max_num_seqs // 2)
    if cfg.kv.dtype == "auto" and (p.device == "cpu" or p.fp8):
        yield Advice(
            name, "FP8 KV cache", ("kv.dtype=fp8",), "twice the tokens of a 16-bit cache, four times those of float32",
            COMPUTED, "answers stay right: scales that were not calibrated are 1.0",
            "jobs.plan memory; accuracy before and after with jobs.evaluate; vllm:num_preemptions",
        )  # fmt: skip
    yield Advice(
        name, "fewer sequences at once", (f"batching.max_num_active_seqs={seqs}",),
        "each preempted request is computed again", UNTRIED, "throughput has room", "vllm:num_preemptions stays at 0",
    )  # fmt: skip


def bursts(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """Requests come in bursts and wait past their target."""
    if (p.peak_to_mean_rate or 0) < BURST or (p.late_share or 0) <= LATE:
        return
    seqs = cfg.engine.max_num_seqs
    yield Advice(
        "bursts", "limits at the door", (f"admission.max_requests={2 * seqs}",),
        "a request refused at once can go elsewhere; one that waits in line is late and makes others late", UNTRIED,
        "clients try again", "refused beside late requests, over the same bursts",
    )  # fmt: skip
    yield Advice(
        "bursts", "another replica", (f"serve.replicas={cfg.serve.replicas + 1}",), "room for the peak", UNTRIED,
        "CPUs or GPUs for it", "late requests over the same bursts",
    )  # fmt: skip


def long_prompts(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """Some prompts are much longer than most, and tokens of others come late while they are computed."""
    if not (p.prompt_tokens_p95 and p.prompt_tokens_p50 and p.tokens_late):
        return
    if p.prompt_tokens_p95 < LONG_PROMPT * p.prompt_tokens_p50:
        return
    if p.device == "cuda":
        cap = min(max(256, p.prompt_tokens_p50), cfg.engine.max_model_len)
        yield Advice(
            "long prompts hold others up", "a limit on one prompt's part of a step",
            (f"batching.long_prefill_token_threshold={cap}",),
            "the others' tokens no longer wait for a whole long prompt", UNTRIED,
            "the long prompts' own first tokens may come later", "95th percentile of time between tokens",
        )  # fmt: skip
    else:
        yield Advice(
            "long prompts hold others up", "long prompts to replicas of their own", (),
            "on CPU a prompt is not computed in chunks", COMPUTED, "two endpoints and a client that chooses",
            "95th percentile of time between tokens",
        )  # fmt: skip
    if p.gpus >= 2:
        yield Advice(
            "long prompts hold others up", "prefill and decode on GPUs of their own", (),
            "frees the time between tokens from prompts; throughput does not rise", UNTRIED,
            "two GPUs, an endpoint on each with kv.transfer, and a router between them that is yours",
            "time to first token and between tokens, both",
        )  # fmt: skip


def overthinking(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """Much of the thinking comes after the answer was found."""
    if p.overthinking_share is None or p.overthinking_share <= OVERTHINKING:
        return
    share = f"{p.overthinking_share:.0%} of the thinking comes after the first right answer"
    if p.own_weights:
        yield Advice(
            "overthinking, weights yours", "DECS training", (), share, TRIED,
            "problems with answers that can be checked",
            "python -m jobs.train, then jobs.evaluate: tokens a right answer",
        )  # fmt: skip
        return
    yield Advice(
        "overthinking, weights fixed", "a budget of thinking", (), share, TRIED,
        "requests carry thinking_token_budget; answers stay right at that budget",
        "tokens a right answer over several budgets, on a sample of your own",
    )  # fmt: skip
    yield Advice(
        "overthinking, weights fixed", "end repetitions", (), "loops never come to an answer", UNTRIED,
        "requests carry repetition_detection", "replies that reach their limit of tokens",
    )  # fmt: skip


def far_prefixes(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """Prompts begin alike, but the cache has forgotten the beginning when it comes again."""
    if not (p.shared_prefix_share and p.reuse_distance_tokens and p.kv_capacity_tokens):
        return
    if p.shared_prefix_share < SHARED or p.reuse_distance_tokens <= p.kv_capacity_tokens:
        return
    gib = 2 * (cfg.kv.tiers.dram_gib or DRAM_GIB / 2)
    if cfg.serve.replicas > 1 and cfg.serve.routing != "prefix":
        yield Advice(
            "prefixes forgotten", "requests that begin alike to the same replica", ("serve.routing=prefix",),
            "each replica then has to remember fewer beginnings", TRIED, "several replicas",
            "vllm:prefix_cache_hits of vllm:prefix_cache_queries",
        )  # fmt: skip
    yield Advice(
        "prefixes forgotten", "a larger cache behind the KV cache (DRAM, then SSD)", (f"kv.tiers.dram_gib={gib:g}",),
        f"a beginning comes again after {p.reuse_distance_tokens:,} tokens; the cache holds {p.kv_capacity_tokens:,}",
        TRIED, "so much host memory a replica; kv.tiers.disk for a disk behind it", "time to first token of hits",
    )  # fmt: skip


def idle_batch(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """Few requests at a time, and each of their tokens is late: compute is idle while weights are read."""
    if p.batch_occupancy is None or p.batch_occupancy > LOW_BATCH or not p.tokens_late or p.acceptance is not None:
        return
    method = "{method: mtp, k_max: 1}" if p.prediction_heads else "{method: ngram, k_max: 4}"
    yield Advice(
        "few requests, slow tokens", "speculation", (f"speculation={method}",),
        "several tokens for one reading of the weights; the first token comes no sooner",
        UNTRIED if p.prediction_heads else TRIED, "drafts are accepted often enough to pay",
        "time between tokens, and vllm:spec_decode_num_accepted_tokens of vllm:spec_decode_num_draft_tokens",
    )  # fmt: skip


def full_batch(p: Profile, cfg: RunConfig) -> Iterator[Advice]:
    """Many requests at a time: compute is the limit, and drafts that are thrown away cost tokens of others."""
    if p.batch_occupancy is None or p.batch_occupancy < HIGH_BATCH:
        return
    tokens = max(STEP_TOKENS, cfg.engine.max_model_len)
    if p.acceptance is not None:
        yield Advice(
            "full batches", "no drafting", (_no_drafting(cfg),),
            f"{1 - p.acceptance:.0%} of the drafted tokens are computed for nothing", COMPUTED,
            "time between tokens has room", "tokens a second at the same concurrency",
        )  # fmt: skip
    yield Advice(
        "full batches", "a larger step", (f"batching.max_num_batched_tokens={tokens}",),
        "more prompt tokens for one reading of the weights", UNTRIED, "memory for the activations of a larger step",
        "tokens a second, and 95th percentile of time between tokens",
    )  # fmt: skip


def _no_drafting(cfg: RunConfig) -> str:
    return f"speculation={_taken_back(cfg.speculation.model_dump(exclude_defaults=True) or {'method': 'none'})}"


def _taken_back(options: Mapping[str, Any]) -> str:
    """YAML that unsets options of the speculation section; unread ones would be errors."""
    parts = ["method: none"] if "method" in options else []
    for name, value in options.items():
        if isinstance(value, Mapping):
            parts.append(f"{name}: {_taken_back(value)}")
        elif name != "method":
            parts.append(f"{name}: {'[]' if isinstance(value, list) else 'null'}")
    return "{" + ", ".join(parts) + "}"


# What does not fit or fails comes first, then what hurts others, then what costs.
RULES: tuple[Rule, ...] = (
    long_context, cache_pressure, bursts, long_prompts, overthinking, far_prefixes, idle_batch, full_batch,
)  # fmt: skip
