"""What a run is. Every option a job reads is declared here, with its unit and its default.

Importable without torch, ray or vllm. Unknown keys are errors (see `load.py` for the nearest-name text).
"""

from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Points = Annotated[float, Field(ge=-1e6, le=1e6)]  # of a reward: squares of much larger ones leave single precision


class Section(BaseModel):
    """Base of all parts: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_switch_as_number(cls, values: object) -> object:
        """`true` is a whole number to pydantic; a switch where a number belongs is a slip of the writer."""
        if isinstance(values, dict):
            for name, field in cls.model_fields.items():
                if isinstance(values.get(name), bool) and not _takes_bool(field.annotation):
                    raise PydanticCustomError("no_switch", "{name} takes no true or false", {"name": name})
        return values


def _takes_bool(annotation: object) -> bool:
    return annotation is bool or any(_takes_bool(part) for part in get_args(annotation))


class Run(Section):
    name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120)  # None: a new one each time
    seed: int = 0
    steps: Positive = 40
    resume: bool = True
    report_problems: NonNegative = 64  # held-out problems answered before and after, for the report; 0: none


class Storage(Section):
    uri: str = "runs"  # a folder, or s3://bucket/prefix
    endpoint_url: str | None = None
    checksums: Literal["when_supported", "when_required"] = "when_supported"


class Tracking(Section):
    uri: str | None = None  # None: the MLFLOW_TRACKING_URI variable, else sqlite under storage
    experiment: str = "decs"
    registered_model: str = "policy"


class Model(Section):
    path: str = "infra/models/tiny"
    dtype: Literal["float32", "bfloat16"] = "float32"  # learner's compute dtype
    think_end: str = "</think>"


class Columns(Section):
    prompt: str = "prompt"
    gold: str = "gold"
    id: str | None = None  # None: a stable digest of the prompt and gold


class Source(Section):
    """Where problems come from.

    `name` is the tiny family, the reasoning-gym task or the hub dataset id; for files it labels the problems and is
    the file's own name unless given. `bad_rows` says what to do with rows that lack an answer and with prompts that
    have several: stop and list them, or leave them out and log the count.
    """

    kind: Literal["tiny", "reasoning_gym", "parquet", "jsonl", "hub"] = "tiny"
    name: Annotated[str, Field(min_length=1)] = "chain_sum"
    path: str | None = None  # parquet and jsonl
    split: str = "train"
    size: Positive | None = None  # the first so many rows; None: all of them; generated sources need it
    columns: Columns = Columns()
    options: dict[str, bool | int | float | str] = {}
    bad_rows: Literal["error", "drop"] = "error"

    @model_validator(mode="before")
    @classmethod
    def _name_of_file(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("kind") in ("parquet", "jsonl") and not values.get("name"):
            return {**values, "name": PurePath(str(values.get("path") or "file")).name}
        return values

    @model_validator(mode="after")
    def _is_whole(self) -> "Source":
        from_file = self.kind in ("parquet", "jsonl")
        if from_file and not self.path:
            raise ValueError(f"a {self.kind} source needs path")
        if self.path and not from_file:
            raise ValueError(f"a {self.kind} source has no path; give its name, or use kind parquet or jsonl")
        if self.kind in ("hub", "reasoning_gym") and "name" not in self.model_fields_set:
            raise ValueError(f"a {self.kind} source needs name")
        if self.kind in ("tiny", "reasoning_gym") and self.size is None:
            raise ValueError(f"a {self.kind} source is generated and needs size")
        if from_file and self.options:
            raise ValueError(f"a {self.kind} source takes no options; they would do nothing")
        return self


class Problems(Section):
    train: list[Source] = [Source(size=4096)]
    held_out: list[Source] = [Source(size=300, split="held_out")]
    prompt_suffix: str = ""


class Engine(Section):
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_model_len: Positive = 512
    max_num_seqs: Positive = 128
    block_size: Positive | None = None  # None: 32 on CPU, the backend's choice elsewhere
    kv_cache_bytes: Positive | None = 256 << 20  # CPU; None on GPU: gpu_memory_utilization
    gpu_memory_utilization: Share = 0.6
    tensor_parallel: Positive = 1
    swap_deadline_s: Seconds = 120  # from the request to new weights confirmed


class Rollout(Section):
    engines: Positive = 2
    cpus_per_engine: Annotated[float, Field(gt=0)] = 0.5
    gpus_per_engine: Annotated[float, Field(ge=0)] = 0
    prompts_per_step: Positive = 24
    group_size: Annotated[int, Field(ge=2, le=1024)] = 8
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_new_tokens: Annotated[int, Field(gt=0, le=1 << 20)] = 320
    deadline_s: Seconds = 300


class Grading(Section):
    workers: Positive = 1
    deadline_s: Seconds = 5


class Judge(Section):
    """Who finds the necessary prefix, and when a judge is not to be trusted.

    Rates are over the last requests (see pipeline/judge/watch.py). `max_miss_rate`: right traces in which no segment
    was judged right. `max_false_yes_rate`: control questions, that is a segment beside another problem's answer, judged
    right. `path` to `gpu_memory_utilization` belong to the learned judge. They may stand beside the exact one, so that
    `judge.name=exact` alone changes the judge of a preset that names a learned one by path and digest.
    """

    name: Literal["exact", "learned"] = "exact"
    threshold: Share = 0.85  # least probability of yes that counts as yes
    deadline_s: Seconds = 60  # for one call of up to 256 segments
    max_failure_rate: Share = 0.05
    max_miss_rate: Share = 0.5
    max_false_yes_rate: Share = 0.1
    on_absurd: Literal["stop", "warn"] = "stop"  # where one of the last two is exceeded
    path: str = "infra/models/judge"
    digest: str | None = None  # the weights the folder must hold; None: any that its manifest confirms
    backend: Literal["transformers", "vllm"] = "transformers"
    max_tokens: Positive = 511  # of problem, answer and segment; a longer one is not judged: counted as overlong
    gpu_memory_utilization: Share = 0.2  # vllm on a GPU
    cpus: Annotated[float, Field(ge=0)] = 0.25
    gpus: Annotated[float, Field(ge=0)] = 0


class Reward(Section):
    name: str = "decs"
    r_plus: Points = 1.1
    r_zero: Points = 1.0
    form: Literal["code", "paper"] = "code"
    options: dict[str, int | float | str | bool] = {}  # of a strategy that has others than these


class KappaRule(StrEnum):
    FEEDBACK_CLIPPED = "feedback_clipped"
    FEEDBACK_UNCLIPPED = "feedback_unclipped"
    LINEAR = "linear"
    CONSTANT = "constant"
    OFF = "off"


class Curriculum(Section):
    """Which groups make a batch. An option moved from its default that the rule does not read is an error."""

    rule: KappaRule = KappaRule.FEEDBACK_CLIPPED
    kappa_rate: Annotated[float, Field(ge=0)] = 0.2  # feedback rules
    kappa_start: Annotated[float, Field(ge=0, lt=1)] = 0.0  # feedback rules and constant
    nrp_start: Share = 0.5  # feedback rules
    easy_ratio_start: Annotated[float, Field(ge=0, lt=1)] = 0.2  # linear
    easy_ratio_end: Annotated[float, Field(ge=0, lt=1)] = 0.6  # linear
    schedule_steps: Positive = 10_000  # linear: training steps from the first ratio to the last
    max_rounds: Positive = 10  # generation rounds a step may take
    min_batch_share: Annotated[float, Field(gt=0, le=1)] = 1.0  # at the limit: the least share of a batch to train on


class Learner(Section):
    ranks: Positive = 2
    cpus_per_rank: Annotated[float, Field(gt=0)] = 0.5
    gpus_per_rank: Annotated[float, Field(ge=0)] = 0
    zero_stage: Literal[0, 1, 2, 3] = 2
    lr: Annotated[float, Field(ge=0)] = 2e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    clip_low: Annotated[float, Field(gt=0)] = 0.2
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    dual_clip: Annotated[float, Field(gt=1)] = 3.0
    importance_cap: Annotated[float, Field(gt=0)] = 2.0
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    micro_batch_tokens: Positive = 8192  # padded tokens a rank holds in one forward pass
    mini_batches: Positive = 1  # optimiser steps a batch
    gradient_checkpointing: bool = False
    checkpoint_every: Positive = 5
    max_failures: NonNegative = 2


class Loop(Section):
    max_staleness: NonNegative = 0  # 0: synchronous
    start_deadline_s: Seconds = 180
    placement_deadline_s: Seconds = 30
    step_deadline_s: Seconds = 600
    report_stall_s: Seconds = 30


class Publish(Section):
    every: Positive = 10  # steps between snapshots that go to storage, the registry and the endpoint
    endpoint: bool = False  # hot-swap a running Serve application
    gate: bool = False  # on: only what passes `gate` against the present champion is served
    parity_limit: Annotated[float, Field(gt=0)] = 1e-3

    @model_validator(mode="after")
    def _is_whole(self) -> "Publish":
        if self.gate and not self.endpoint:
            raise ValueError("publish.gate decides what the endpoint serves; set publish.endpoint too")
        return self


class Gate(Section):
    """What a candidate must hold to be served: on the frozen problems (`problems.held_out`) against the champion, then,
    with a part of the traffic, against the other replicas. A limit is crossed where the interval of a figure says so.
    """

    problems: Positive | None = None  # of the frozen ones, in turns from each source; None: all
    samples: Positive = 1  # replies a problem
    min_problems: Annotated[int, Field(ge=2)] = 50  # fewer decide nothing: refused
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95  # of intervals, drawn over problems
    min_accuracy: Annotated[float, Field(gt=0, le=1)] = 0.01  # whatever the champion has
    max_accuracy_drop: Share = 0.05  # point estimate; a smaller drop is refused too where the whole interval is below 0
    max_tokens_ratio: Annotated[float, Field(ge=1)] = 1.25  # tokens a reply, candidate over champion
    max_unknown_rate: Share = 0.05  # replies whose check failed
    max_truncation_rate: Share = 0.2  # replies cut at the limit
    parity_limit: Annotated[float, Field(gt=0)] | None = None  # nats; None: publish.parity_limit for a float32 engine
    canary_replicas: Positive = 1
    soak_s: Seconds = 30  # least time on a part of the traffic
    look_every_s: Seconds = 1
    min_canary_requests: NonNegative = 20  # fewer by the deadline: refused; latency and tokens are judged from then on
    max_error_rate: Share = 0.01  # above that of the other replicas
    max_latency_ratio: Annotated[float, Field(ge=1)] = 1.5  # p50 and p99 of seconds a reply, canary over the others
    max_silence_s: Seconds = 15  # without an answer from a canary replica
    replay: NonNegative = 80  # frozen problems sent by the command itself while it watches; 0: live traffic alone
    deadline_s: Seconds = 300  # for a measurement during training, and for a canary beyond soak_s
    keep_copies: NonNegative = 2  # local copies of snapshots beside those in use, champion, previous and candidate

    @model_validator(mode="after")
    def _is_whole(self) -> "Gate":
        if self.problems is not None and self.problems < self.min_problems:
            raise ValueError(f"gate.problems ({self.problems}) is below gate.min_problems ({self.min_problems})")
        return self


class Access(Section):
    """Who may use the endpoint, and how much. Without keys it is open, which only a loopback address may be.

    Rates are for each key, over all replicas; each replica allows its share of them.
    """

    keys_file: str | None = None  # made by `python -m jobs.keys`
    requests_per_minute: Annotated[float, Field(gt=0, lt=1e12)] | None = None  # None: no limit; a key may have its own
    tokens_per_minute: Annotated[float, Field(gt=0, lt=1e12)] | None = None  # of prompts and replies
    max_body_bytes: Positive = 1 << 20
    max_waiting: Positive = 512  # requests in one replica, waiting or running; above: 503
    cors_origins: list[str] = []  # whose pages may use the endpoint from a browser, such as https://app.example.org
    log_requests: bool = False  # prompts and replies go into the log
    tenant_salts: bool = True  # each key has a prefix cache of its own


class Autoscaling(Section):
    """As many replicas as the requests inside them ask for, running and waiting ones. Off without max_replicas.

    All replicas up to max_replicas must find room in the cluster: a swap waits for one that is starting.
    """

    min_replicas: Positive = 1
    max_replicas: Positive | None = None  # None: off, always serve.replicas
    target_ongoing_requests: Annotated[float, Field(gt=0)] | None = None  # a replica; None: engine.max_num_seqs / 2
    upscale_delay_s: Annotated[float, Field(ge=0)] = 10  # so long more are needed before there are more
    downscale_delay_s: Annotated[float, Field(ge=0)] = 300

    @model_validator(mode="after")
    def _is_whole(self) -> "Autoscaling":
        if self.max_replicas is None:
            for name, field in type(self).model_fields.items():
                if getattr(self, name) != field.default:
                    raise ValueError(f"{name} does nothing without max_replicas; set that too, or remove it")
        elif self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) is above max_replicas ({self.max_replicas})")
        return self


class Serve(Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: a free one
    model_id: str = "policy"
    replicas: Positive = 1
    autoscaling: Autoscaling = Autoscaling()
    routing: Literal["least_connections", "prefix"] = "least_connections"  # prefix: where a prompt's start was before
    routing_imbalance: Positive | None = None  # prefix: requests a replica may hold above the least; None: 8
    tool_parser: str | None = None  # of vLLM, for a model that calls tools; None: none are parsed
    cpus_per_replica: Annotated[float, Field(gt=0)] = 0.5
    swap_mode: Literal["wait", "keep"] = "wait"
    drain_deadline_s: Seconds = 60
    start_deadline_s: Seconds = 300
    access: Access = Access()

    @property
    def most_replicas(self) -> int:
        """How many replicas there may be at a time."""
        return self.autoscaling.max_replicas or self.replicas

    @model_validator(mode="after")
    def _is_whole(self) -> "Serve":
        if self.autoscaling.max_replicas and self.replicas > 1:
            raise ValueError("replicas does nothing beside autoscaling.max_replicas; use autoscaling.min_replicas")
        if self.routing_imbalance and self.routing != "prefix":
            raise ValueError("routing_imbalance does nothing unless routing is 'prefix'; remove it")
        return self


class KvCache(Section):
    """The endpoint's KV cache; its size and blocks are `engine`'s."""

    dtype: Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"] = "auto"
    prefix_cache: bool = True
    prefix_hash: Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"] = "sha256"


class Batching(Section):
    """What one step of the endpoint's engines may hold. None and 0 leave the choice to vLLM."""

    max_num_batched_tokens: Positive | None = None  # a step's tokens, all requests together
    max_num_active_seqs: Positive | None = None  # sequences admitted at once; None: engine.max_num_seqs
    long_prefill_token_threshold: NonNegative = 0  # a step's tokens of one long prompt; 0: no limit
    long_prefill_token_threshold_adaptive: bool = False  # raises the limit to a fair share of the step


class Admission(Section):
    """When a replica's engine refuses a request, and in which order the others wait."""

    max_requests: Positive | None = None  # in flight, running or waiting
    max_prefill_tokens: Positive | None = None  # of prompts not yet computed
    policy: Literal["fcfs", "priority"] = "fcfs"  # priority: a request's `priority`, lower first


class Speculation(Section):
    """Who drafts tokens that the served model then verifies; exact in distribution. An option that the method does not
    read is an error."""

    method: Literal["none", "ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp"] = "none"
    k_max: Positive | None = None  # most tokens drafted a step
    model: str | None = None  # folder of the draft model or head; mtp: None for the heads inside the served model
    prompt_lookup_min: Positive | None = None  # ngram: shortest and longest phrase looked for; None: 5
    prompt_lookup_max: Positive | None = None
    table: list[tuple[Positive, Positive, NonNegative]] = []  # [from, to, k] by a step's requests; empty: always k_max

    @model_validator(mode="after")
    def _is_whole(self) -> "Speculation":
        given = self.model_fields_set - {"method"}
        reads = {"k_max", "model", "prompt_lookup_min", "prompt_lookup_max", "table"}
        reads -= {"prompt_lookup_min", "prompt_lookup_max"} if self.method != "ngram" else {"model"}
        reads -= {"none": reads, "suffix": {"model", "table"}}.get(self.method, set())
        idle = sorted(name for name in given - reads if getattr(self, name) not in (None, []))
        if idle:
            why = "; suffix decoding sets its own length for each request" if idle == ["table"] else ""
            raise ValueError(f"{idle[0]} does nothing with method '{self.method}'{why}; remove it")
        if self.method not in ("none", "suffix") and self.k_max is None:
            raise ValueError(f"method '{self.method}' needs k_max, the most tokens drafted a step, such as 4")
        if self.method in ("draft_model", "eagle", "eagle3") and not self.model:
            raise ValueError(f"method '{self.method}' needs model, the folder of what drafts")
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        if low and high and low > high:
            raise ValueError(f"prompt_lookup_min ({low}) is above prompt_lookup_max ({high})")
        before = 0
        for start, end, k in self.table:
            if start != before + 1 or end < start:
                raise ValueError(
                    f"table: [{start}, {end}, {k}] must start at {before + 1} and end no earlier; rows follow on"
                )
            if k > (self.k_max or 0):
                raise ValueError(f"table: {k} tokens in [{start}, {end}, {k}] are more than k_max ({self.k_max})")
            before = end
        return self


class Quant(Section):
    """Weights rounded while they are loaded. A checkpoint that is quantised already says so itself."""

    weights: Literal["none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "int8_per_channel_weight_only"] = (
        "none"
    )


class Reasoning(Section):
    """How thinking is told from the answer, and where a request's thinking_token_budget counts.

    A parser brings its own marks, and vLLM fails on others beside it; start and end are for models without a parser.
    """

    parser: str | None = "deepseek_r1"  # text up to </think> is thinking, also when the prompt opened it
    start: str | None = None
    end: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> "Reasoning":
        if bool(self.start) != bool(self.end):
            raise ValueError("start and end belong together; set both or neither")
        if self.parser and self.start:
            raise ValueError(f"the parser '{self.parser}' brings its own marks; remove start and end, or the parser")
        return self


class Evaluation(Section):
    """How a model is measured. A benchmark brings its own sampling; what the command line sets goes before it."""

    samples: Positive = 1  # replies a problem
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_new_tokens: Positive | None = None  # None: the benchmark's, else rollout.max_new_tokens
    budgets: list[Positive] = []  # tokens after which a reply counts as cut; empty: 2k, 4k, ..., or parts of the limit
    concurrency: Positive = 32  # requests to an endpoint at a time
    request_timeout_s: Seconds = 120
    probe_timeout_s: Seconds = 5  # for an endpoint to say what it serves, before anything else is sent
    code_seconds: Seconds = 6  # processor time of a program's test
    code_memory_mb: Positive = 2048


class Comparison(Section):
    """`jobs.compare`: options of rewards, by reward, where their defaults do not fit the problems."""

    reward_options: dict[str, dict[str, int | float | str | bool]] = {}


def _check_heads(hidden: int, heads: int) -> None:
    if hidden % (32 * heads):
        raise ValueError(
            f"hidden={hidden} over heads={heads} gives heads of {hidden / heads:g}; attention on CPU needs a whole "
            "multiple of 32"
        )


class WarmStart(Section):
    """Teaching a small model from nothing: first to solve (plain lessons), then to overthink.

    Ranks, ZeRO stage, betas, decay and clipping are those of `learner`.
    """

    steps: Positive = 4200
    plain_steps: NonNegative = 3000  # of these: attempts are not repeated, so most tokens teach solving
    plain_tokens_per_step: Positive = 2048
    tokens_per_step: Positive = 4096
    lr: Annotated[float, Field(gt=0)] = 3e-3
    overthink_lr: Annotated[float, Field(gt=0)] = 1.5e-3  # where the second phase starts
    lr_floor: Share = 0.03  # of a phase's rate, at the end of its cosine
    warmup_steps: NonNegative = 50
    hidden: Positive = 128
    layers: Positive = 4
    heads: Positive = 4
    intermediate: Positive = 512
    slip: Share = 0.1  # chance that an attempt in a demonstration goes wrong
    min_checks: NonNegative = 1  # attempts after the first
    max_checks: NonNegative = 3
    log_every: Positive = 10
    checkpoint_every: Positive = 200

    @model_validator(mode="after")
    def _is_whole(self) -> "WarmStart":
        if self.min_checks > self.max_checks:
            raise ValueError(f"min_checks ({self.min_checks}) is above max_checks ({self.max_checks}); lower the first")
        _check_heads(self.hidden, self.heads)
        return self


class JudgeTraining(Section):
    """Teaching a judge: sample, cut and label traces of `model.path`, then learn yes or no for each segment.

    Ranks, ZeRO stage, betas, decay and clipping are those of `learner`; traces a problem, `evaluation.samples`; the
    labeller's failure limit, `judge.max_failure_rate`.
    """

    labeller: Literal["exact", "endpoint"] = "exact"
    endpoint_url: str | None = None  # of an OpenAI-compatible server; its key, if any, is in OPENAI_API_KEY
    endpoint_model: str | None = None
    base: str | None = None  # a judge to go on from; None: a new small model of the shape below
    validation: Share = 0.1  # of the training problems: their segments are not learned from
    min_no_share: Share = 0.3  # where segments hold fewer, some are put beside another problem's answer
    altered: NonNegative = 50000  # more questions: tiny-world segments with other numbers, signs, phrases and answers
    short: NonNegative = 100000  # of the same kind, cut down to the line with the answer
    steps: Positive = 3000
    short_steps: NonNegative = 600  # of these: short questions, in which most tokens are to the point
    tokens_per_step: Positive = 4096  # half as many in the short ones
    lr: Annotated[float, Field(gt=0)] = 3e-3
    lr_floor: Share = 0.03  # of the rate, at the end of its cosine
    warmup_steps: NonNegative = 50
    hidden: Positive = 64
    layers: Positive = 2
    heads: Positive = 2
    intermediate: Positive = 128
    log_every: Positive = 10
    checkpoint_every: Positive = 250

    @model_validator(mode="after")
    def _is_whole(self) -> "JudgeTraining":
        if self.labeller == "endpoint" and not (self.endpoint_url and self.endpoint_model):
            raise ValueError("the labeller 'endpoint' needs endpoint_url and endpoint_model")
        if self.short_steps and not self.short:
            raise ValueError("short_steps needs short questions; set short, or short_steps to 0")
        if self.labeller == "exact" and (self.endpoint_url or self.endpoint_model):
            raise ValueError("endpoint_url and endpoint_model do nothing unless labeller is 'endpoint'")
        _check_heads(self.hidden, self.heads)
        return self


class RunConfig(Section):
    """One run, whole. Parts are named after the rooms that read them."""

    run: Run = Run()
    storage: Storage = Storage()
    tracking: Tracking = Tracking()
    model: Model = Model()
    problems: Problems = Problems()
    engine: Engine = Engine()
    rollout: Rollout = Rollout()
    grading: Grading = Grading()
    judge: Judge = Judge()
    reward: Reward = Reward()
    curriculum: Curriculum = Curriculum()
    learner: Learner = Learner()
    loop: Loop = Loop()
    publish: Publish = Publish()
    gate: Gate = Gate()
    serve: Serve = Serve()
    kv: KvCache = KvCache()
    batching: Batching = Batching()
    admission: Admission = Admission()
    speculation: Speculation = Speculation()
    quant: Quant = Quant()
    reasoning: Reasoning = Reasoning()
    evaluation: Evaluation = Evaluation()
    comparison: Comparison = Comparison()
    warm_start: WarmStart = WarmStart()
    judge_training: JudgeTraining = JudgeTraining()

    @model_validator(mode="after")
    def _fits(self) -> "RunConfig":
        if self.rollout.max_new_tokens >= self.engine.max_model_len:
            raise ValueError(
                f"rollout.max_new_tokens ({self.rollout.max_new_tokens}) leaves no room for a prompt in "
                f"engine.max_model_len ({self.engine.max_model_len}); lower the first or raise the second"
            )
        return self
