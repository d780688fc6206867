"""The rows of the table of serving levers: what each asks of the engine, and how its clients send. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pipeline.config import RunConfig, UserError
from pipeline.config.schema_serving import Autoscaling, KvCache, Quant, Speculation

Clients = Literal["one", "groups", "open"]
T = TypeVar("T")
PHRASE_TOKENS = (3, 4)  # ngram looks for short phrases, since a step of a small model is cheap to verify
STEP_COSTS = {"draft_fixed": 0.02}  # ngram looks a phrase up; no model drafts


@dataclass(frozen=True)
class Row:
    """`clients`: one at a time; groups of which the next starts when the last reply of the one before is whole; or
    open, where nobody waits for anybody. `lever` is what it adds to the rows before."""

    name: str
    title: str
    lever: str
    clients: Clients = "open"


ROWS = {
    row.name: row
    for row in (
        Row("A", "no batching", "max_num_seqs=1, one client", "one"),
        Row("A'", "static groups", "groups with a barrier, by the client", "groups"),
        Row("B", "continuous batching", "requests join and leave at every step"),
        Row("C", "FP8 weights", "quant.weights"),
        Row("D", "FP8 KV cache", "kv.dtype"),
        Row("E", "speculation, static", "speculation, the best length of a sweep"),
        Row("F", "speculation, adaptive", "speculation.policy"),
        Row("G", "shorter thinking", "a trained checkpoint, or a thinking budget"),
    )
}
STACKING = ("C", "D", "E", "F")  # levers on which the rows after them stand


@dataclass(frozen=True)
class Choices:
    """What the command line decides about rows: requests computed at once, draft lengths, the FP8 of C, and what G is
    given."""

    seqs: int
    drafts: tuple[int, ...] = (2, 4)
    weights: str = "fp8_per_tensor"
    trained: str | None = None
    thinking_budget: int | None = None


def chosen(text: str) -> list[Row]:
    """The rows named in `text`, in the table's order. UserError for names that are none, or none at all."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [name for name in names if name not in ROWS]:
        raise UserError(f"--rows {text}: there is no row {unknown[0]}; the rows are {','.join(ROWS)}")
    if not names:
        raise UserError(f"--rows is empty; the rows are {','.join(ROWS)}")
    return [row for name, row in ROWS.items() if name in names]


def stack_of(row: Row, ran: Collection[str]) -> list[str]:
    """The levers a row stands on: of the rows before it, those that ran. F takes the place of E's."""
    order = list(ROWS)
    found = [name for name in STACKING if name in ran and order.index(name) < order.index(row.name)]
    return [name for name in found if name != "E"] if "F" in (*found, row.name) else found


def waves(row: Row, items: Sequence[T], size: int) -> list[Sequence[T]]:
    """What is sent without waiting for the part before: all, but for a row of groups, `size` items at a time."""
    step = size if row.clients == "groups" else max(1, len(items))
    return [items[start : start + step] for start in range(0, len(items), step)]


def plain(cfg: RunConfig, seqs: int) -> RunConfig:
    """Row B: the config's engine with `seqs` requests at once, one replica, and none of the levers."""
    sections = {
        "engine": cfg.engine.model_copy(update={"max_num_seqs": seqs}),
        "kv": cfg.kv.model_copy(update={"dtype": "auto"}),
        "quant": Quant(),
        "speculation": Speculation(),
        "serve": cfg.serve.model_copy(update={"replicas": 1, "autoscaling": Autoscaling()}),
    }
    return cfg.model_copy(update=sections)


def row_config(row: Row, cfg: RunConfig, stack: Sequence[str], choices: Choices, k: int, log: str) -> RunConfig:
    """The config of a row on top of the levers of `stack`. `k`: the draft length of E, the longest of F; `log`: the
    file of F's decisions. What the config itself sets for a lever (its drafter, its type) is what the lever means."""
    found = plain(cfg, 1 if row.clients == "one" else choices.seqs)
    on = [*stack, row.name]
    if "C" in on:
        weights = choices.weights if cfg.quant.weights == "none" else cfg.quant.weights
        found = found.model_copy(update={"quant": Quant(weights=weights)})
    if "D" in on:
        dtype = "fp8" if cfg.kv.dtype == "auto" else cfg.kv.dtype
        found = found.model_copy(update={"kv": KvCache(**(cfg.kv.model_dump() | {"dtype": dtype}))})
    if "E" in on or "F" in on:
        found = found.model_copy(update={"speculation": _speculation(cfg, k, log if "F" in on else None)})
    if row.name == "G" and choices.trained:
        found = found.model_copy(update={"model": cfg.model.model_copy(update={"path": choices.trained})})
    return found


def _speculation(cfg: RunConfig, k: int, log: str | None) -> Speculation:
    """The config's drafter, else ngram; a fixed length, or (with a `log`) the config's policy, else `goodput`."""
    asked = cfg.speculation
    if asked.method == "none":
        shortest, longest = PHRASE_TOKENS
        drafter: dict[str, Any] = {"method": "ngram", "prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    else:
        names = ("method", "model", "prompt_lookup_min", "prompt_lookup_max", "branches", "backup")
        drafter = {name: value for name in names if (value := getattr(asked, name)) is not None}
    if log is None:
        return Speculation(**drafter, k_max=k)
    if asked.policy is None:
        return Speculation(**drafter, k_max=k, policy="goodput", costs=STEP_COSTS, log=log)
    policy = asked.model_dump(include={"policy", "policy_options", "costs", "end_of_thinking"}, exclude_none=True)
    return Speculation(**drafter, k_max=k, log=log, **policy)


def not_given(row: Row, choices: Choices) -> str:
    """Why a row has nothing to measure, by the command line alone; empty where it has."""
    if row.name == "G" and choices.trained is None and choices.thinking_budget is None:
        return "neither --trained FOLDER nor --thinking-budget TOKENS was given"
    return ""


def no_policy(row: Row, cfg: RunConfig) -> str:
    """Why no policy can choose the row's draft lengths; empty where one can, or the row has none."""
    if row.name == "F" and cfg.speculation.method == "suffix":
        return "suffix decoding sets its own length for each request, so there is nothing for a policy to choose"
    return ""


def extra_body(row: Row, choices: Choices) -> Mapping[str, Any]:
    """What each request of the row carries beside the usual."""
    budget = choices.thinking_budget if row.name == "G" else None
    return {} if budget is None else {"thinking_token_budget": budget}
