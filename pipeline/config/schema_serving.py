"""The sections that the endpoint reads: who may call it, and how its engines hold, batch, draft and round."""

import os
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline.config.fields import NonNegative, Positive, Seconds, Section, Share


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


class DiskTier(Section):
    """Files behind the pool in host memory, under a path that several engines may share."""

    path: str | None = None  # a folder of the machine that the replica runs on; None: no disk tier
    max_gib: Annotated[float, Field(gt=0)] | None = None  # of all files there, whoever wrote them
    threads: Annotated[int, Field(gt=0, le=256)] = 4  # that read and write


class Tiers(Section):
    """Where the prefix cache's blocks go beside the engine's own cache: host memory, and from there a disk."""

    dram_gib: Annotated[float, Field(gt=0)] | None = None  # of each replica; None: no tiers
    eviction: Literal["lru", "arc"] = "lru"  # of the pool in host memory
    disk: DiskTier = DiskTier()

    @model_validator(mode="after")
    def _is_whole(self) -> "Tiers":
        if self.dram_gib is None and self.disk.path:
            raise ValueError("disk needs dram_gib: blocks reach the disk, and come back, through host memory")
        if self.dram_gib is None and self.eviction != "lru":
            raise ValueError("eviction does nothing without dram_gib; set that too, or remove it")
        if self.disk.path and self.disk.max_gib is None:
            raise ValueError("disk.path needs disk.max_gib, how much of the disk may be used")
        if not self.disk.path and self.disk != DiskTier():
            raise ValueError("disk does nothing without disk.path; set that too, or remove it")
        return self


class Transfer(Section):
    """Finished prefixes from one endpoint's engines to another's, on GPUs: one computes prompts, the other replies."""

    connector: Literal["nixl", "nixl_push", "mooncake", "moriio"] | None = None
    role: Literal["both", "producer", "consumer"] = "both"  # producer: computes prompts; consumer: replies
    extra: dict[str, Any] = {}  # the connector's own options, as vLLM names them

    @model_validator(mode="after")
    def _is_whole(self) -> "Transfer":
        if self.connector is None and (self.extra or self.role != "both"):
            raise ValueError("role and extra do nothing without connector; set that too, or remove them")
        return self


class KvCache(Section):
    """The endpoint's KV cache; its size and blocks are `engine`'s."""

    dtype: Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"] = "auto"
    prefix_cache: bool = True
    prefix_hash: Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"] = "sha256"
    tiers: Tiers = Tiers()
    transfer: Transfer = Transfer()


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


class StepCosts(Section):
    """What a step of the engine costs a draft-length policy; one unit for all, such as a pass of the served model.
    None: the default of `serve.speculation.costs`."""

    fixed: Annotated[float, Field(gt=0)] | None = None  # a pass of the served model; 1
    per_token: Annotated[float, Field(ge=0)] | None = None  # for each token of it beyond free_tokens; 0
    free_tokens: NonNegative | None = None  # 0
    draft_fixed: Annotated[float, Field(ge=0)] | None = None  # one more draft token for all requests; 0.05
    draft_per_sequence: Annotated[float, Field(ge=0)] | None = None  # the same, for each request; 0


class PolicyOptions(Section):
    """Options of a draft-length policy; one that it does not read is an error. None: the policy's own default."""

    seed: NonNegative | None = None
    dwell: Positive | None = None  # decisions for which a length stays
    k: NonNegative | None = None  # static: the length
    table: str | None = None  # table: the file of lengths, made by `python -m jobs.tune draft-length`
    half_life: Annotated[float, Field(gt=0)] | None = None  # goodput, thompson, learned: steps until half is forgotten
    probe_every: Positive | None = None  # goodput: decisions between looks one above the best length
    margin: Share | None = None  # goodput: a length is left only for one so much better
    discount: Annotated[float, Field(gt=0, lt=1)] | None = None  # ucb: what is kept of the past at each step
    width: Annotated[float, Field(ge=0)] | None = None  # ucb: of its bound, in units of the best mean
    rate: Annotated[float, Field(gt=0)] | None = None  # learned: its learning rate
    floor: Annotated[float, Field(gt=0, lt=0.5)] | None = None  # learned: least probability of going on and of stopping


class Speculation(Section):
    """Who drafts tokens that the served model then verifies, and how many; exact in distribution. An option that the
    method, or the policy, does not read is an error."""

    method: Literal["none", "ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "ssd", "custom_class"] = "none"
    k_max: Positive | None = None  # most tokens drafted a step
    model: str | None = None  # folder of the draft model or head; mtp: None for the heads inside the served model;
    # custom_class: the drafter's Python class, as package.module.Class
    prompt_lookup_min: Positive | None = None  # ngram: shortest and longest phrase looked for; None: 5
    prompt_lookup_max: Positive | None = None
    branches: Positive | None = None  # ssd: drafts prepared for each request while its last one is verified; None: 16
    backup: Literal["draft", "none"] | None = None  # ssd: when no prepared draft fits; None: draft
    table: list[tuple[Positive, Positive, NonNegative]] = []  # [from, to, k] by a step's requests; empty: always k_max
    policy: Literal["static", "table", "ucb", "thompson", "goodput", "learned"] | None = None  # chooses each step's k
    policy_options: PolicyOptions = PolicyOptions()
    costs: StepCosts = StepCosts()
    end_of_thinking: NonNegative | None = None  # id of the token after which a reply is answer; None: all is answer
    log: str | None = None  # a file: one line of JSON for each decision of the policy
    memory: str | None = None  # a file: what the policy learned, read at the start and written now and then

    @model_validator(mode="after")
    def _is_whole(self) -> "Speculation":
        self._check_reads()
        if self.method not in ("none", "suffix") and self.k_max is None:
            raise ValueError(f"method '{self.method}' needs k_max, the most tokens drafted a step, such as 4")
        if self.method in ("draft_model", "eagle", "eagle3") and not self.model:
            raise ValueError(f"method '{self.method}' needs model, the folder of what drafts")
        if self.method == "custom_class" and not all(part.isidentifier() for part in (self.model or "").split(".")):
            raise ValueError("method 'custom_class' needs model, the drafter's Python class as package.module.Class")
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        if low and high and low > high:
            raise ValueError(f"prompt_lookup_min ({low}) is above prompt_lookup_max ({high})")
        self._check_policy()
        self._check_table()
        return self

    def _check_reads(self) -> None:
        own = {"ngram": {"prompt_lookup_min", "prompt_lookup_max"}, "ssd": {"branches", "backup"}}.get(self.method)
        reads = {"k_max", "table", *(own or {"model"}), *_OF_POLICY}
        reads = {"none": set(), "suffix": {"k_max"}}.get(self.method, reads)
        idle = sorted(name for name in _given(self) if name.split(".")[0] not in reads | {"method"})
        if idle:
            fixed = self.method == "suffix" and idle[0].split(".")[0] in _OF_POLICY | {"table"}
            why = "; suffix decoding sets its own length for each request" if fixed else ""
            raise ValueError(f"{idle[0]} does nothing with method '{self.method}'{why}; remove it")

    def _check_policy(self) -> None:
        given = [name for name in _given(self) if name.split(".")[0] in _OF_POLICY - {"policy"}]
        if self.policy is None and given:
            raise ValueError(f"{given[0]} does nothing without policy; set that too, or remove it")
        if self.policy and self.table:
            raise ValueError("table does nothing beside policy, which chooses the length itself; remove one of them")
        if self.log and self.memory and os.path.realpath(self.log) == os.path.realpath(self.memory):
            raise ValueError(f"log and memory are the same file, {self.log}; give each a file of its own")
        if self.policy in ("static", "table"):
            if self.memory:
                raise ValueError(f"memory does nothing with policy '{self.policy}', which learns nothing; remove it")
            idle = [name for name in given if name.startswith("costs.")]
            if idle and not self.log:
                raise ValueError(f"{idle[0]} does nothing with policy '{self.policy}' and no log; remove it")

    def _check_table(self) -> None:
        before = 0
        for start, end, k in self.table:
            if start != before + 1 or end < start:
                raise ValueError(
                    f"table: [{start}, {end}, {k}] must start at {before + 1} and end no earlier; rows follow on"
                )
            if k > (self.k_max or 0):
                raise ValueError(f"table: {k} tokens in [{start}, {end}, {k}] are more than k_max ({self.k_max})")
            before = end


_OF_POLICY = {"policy", "policy_options", "costs", "end_of_thinking", "log", "memory"}


def _given(section: Section, above: str = "") -> list[str]:
    """The options of a section that were set, dotted."""
    names = []
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            names += _given(value, f"{above}{name}.")
        elif value not in (None, []):
            names.append(above + name)
    return names


class Quant(Section):
    """Weights rounded while they are loaded. A checkpoint that is quantised already (`jobs.quantize`, `jobs.qat`) says
    so in its config.json, and goes with none."""

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
