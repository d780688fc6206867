"""What a run is. Every option a job reads is declared here, with its unit and its default.

Importable without torch, ray or vllm. Unknown keys are errors (see `load.py` for the nearest-name text).
"""

from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.fields import Beta, NonNegative, Points, Positive, Seconds, Section, Share
from pipeline.config.schema_serving import (
    Admission,
    Batching,
    KvCache,
    Quant,
    Reasoning,
    Serve,
    Speculation,
)
from pipeline.config.schema_teaching import JudgeTraining, Qat, WarmStart


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
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95  # of intervals, over problems; in the canary over replies
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
    qat: Qat = Qat()

    @model_validator(mode="after")
    def _fits(self) -> "RunConfig":
        if self.rollout.max_new_tokens >= self.engine.max_model_len:
            raise ValueError(
                f"rollout.max_new_tokens ({self.rollout.max_new_tokens}) leaves no room for a prompt in "
                f"engine.max_model_len ({self.engine.max_model_len}); lower the first or raise the second"
            )
        if self.qat.bits and self.quant.weights != "none":
            raise ValueError(
                f"qat.bits trains weights for INT{self.qat.bits} and quant.weights ({self.quant.weights}) rounds them "
                "to something else: weights are rounded once; set one of the two (kv.dtype fp8 goes with either)"
            )
        return self
