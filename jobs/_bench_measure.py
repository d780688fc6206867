"""Measures one row: its server, its load, its checked answers. A row that did not run says why and has no figures."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobs._bench_answers import Answers, Price, answer_figures, ask, checked
from jobs._bench_client import LoadClient, Sending
from jobs._bench_refused import refused_here
from jobs._bench_requests import Shape, plan
from jobs._bench_rows import Choices, Row, extra_body, no_policy, not_given, row_config
from jobs._bench_serve_figures import Faulty, Repeat, Slo, row_figures
from jobs._bench_served import Served, serving
from jobs._evaluation import Evaluation
from jobs._services import ServiceError
from pipeline.config import RunConfig, UserError, check_model_folder
from pipeline.loop.assemble import load_tokenizer
from serve.kv_budget import read_model_config
from serve.speculation.logs import read_decisions

REPEAT_S = 900.0  # for the load generator to be done with one repeat
WARM_SEED = -1  # other requests than any repeat's
Entry = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What every row is measured with: the same requests in each repeat, the same problems, the same limits."""

    requests: int
    repeats: int
    lengths: tuple[int, ...]
    rate: float
    temperature: float
    slo: Slo
    price: Price
    choices: Choices
    prompts: Sequence[str]

    def shapes(self, seed: int, count: int | None = None) -> list[Shape]:
        return plan(self.requests if count is None else count, seed, self.prompts, self.lengths, 1.0)

    def identity(self) -> dict[str, Any]:
        """What a kept row must have been measured with, to be taken over."""
        named = ("requests", "repeats", "lengths", "temperature")
        told = {name: getattr(self, name) for name in named} | {"rate": str(self.rate), "slo": self.slo.to_dict()}
        return json.loads(json.dumps(told | {"choices": vars(self.choices), "price": vars(self.price)}))


def not_run(why: str, failed: bool = False) -> Entry:
    """An entry without figures; `failed`: it was tried, and broke."""
    return {"ran": False, "why_not": why, "failed": failed}


@dataclass
class Bench:
    """`cfg` is the config whose rows are made; `done` is told how many requests or answers came back."""

    cfg: RunConfig
    plan: Plan
    evaluation: Evaluation
    client: LoadClient
    folder: Path
    done: Callable[[int], object]
    static: int | None = None  # the draft length that E was best with

    def entry(self, row: Row, stack: Sequence[str]) -> Entry:
        """The row on top of the levers of `stack`; with several draft lengths the fastest, and all as `sweep`."""
        told = {"row": row.name, "title": row.title, "lever": row.lever, "on_top_of": list(stack)}
        if why := not_given(row, self.plan.choices) or no_policy(row, self.cfg):
            return told | not_run(why)
        tries = [self._try(row, stack, k) for k in lengths_of(row, self.plan.choices)]
        ran = [one for one in tries if one["ran"]]
        best = max(ran, key=lambda one: one["output_tokens_per_s"]) if ran else tries[0]
        if row.name == "E":
            self.note(best)
        swept = ("draft_length", "ran", "why_not", "output_tokens_per_s", "acceptance", "raw")
        sweep = {"sweep": [{name: one.get(name) for name in swept} for one in tries]} if len(tries) > 1 else {}
        return told | best | sweep

    def note(self, entry: Mapping[str, Any]) -> None:
        """What later rows need to know of E's entry, measured now or kept."""
        self.static = entry.get("draft_length") if entry["ran"] else None

    def _try(self, row: Row, stack: Sequence[str], k: int | None) -> Entry:
        folder = self.folder / "rows" / folder_name(row) / ("" if k is None else f"k{k}")
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "decisions.jsonl"
        log.unlink(missing_ok=True)
        told = {} if k is None else {"draft_length": k}
        try:
            length = k or (self.static if "E" in stack else None) or max(self.plan.choices.drafts)
            cfg = row_config(row, self.cfg, stack, self.plan.choices, length, str(log))
            model = check_model_folder(cfg.model.path)
            if refused := refused_here(cfg, read_model_config(model / "config.json")):
                return told | not_run(refused)
            return told | self._measured(row, cfg, model, folder, log)
        except (UserError, ServiceError, Faulty) as error:
            return told | not_run(str(error), failed=True)

    def _measured(self, row: Row, cfg: RunConfig, model: Path, folder: Path, log: Path) -> Entry:
        self.client.start()
        with serving(cfg, model, folder) as served:
            options = {"requested": served.requested, "effective": served.effective}
            if why := served.not_in_effect():
                return not_run(why) | options
            repeats, raw = self._load(row, cfg, served, model, folder)
            answers = self._answers(row, served, model)
        figures = row_figures(repeats, self.plan.slo) | answer_figures(answers, self.plan.price)
        figures |= {"peak_memory_gb": served.memory["peak_gb"], "memory_of": served.memory["of"]}
        figures |= {"kv_tokens": served.kv_tokens, "decisions": decisions(log)}
        if why := idle_lever(row, figures, self.plan.choices):
            return not_run(why) | options
        files = [str(path.relative_to(self.folder)) for path in raw]
        return {"ran": True, "why_not": None, "failed": False, **figures, "raw": files, **options}

    def _load(
        self, row: Row, cfg: RunConfig, served: Served, model: Path, folder: Path
    ) -> tuple[list[Repeat], list[Path]]:
        """The first requests of a server are slow: some are sent before."""
        seed, seqs = cfg.run.seed, self.plan.choices.seqs
        extra = extra_body(row, self.plan.choices)
        sending = Sending(
            served.url, cfg.serve.model_id, str(model), seqs, self.plan.rate, self.plan.temperature, seed, extra
        )
        few = 2 if row.clients == "one" else seqs
        warm = self.plan.shapes(seed + WARM_SEED, few)
        self.client.repeat(row, replace(sending, rate=math.inf), warm, folder / "warm", REPEAT_S)
        repeats, raw = [], []
        for number in range(self.plan.repeats):
            sending = replace(sending, seed=seed + number)
            files = folder / f"repeat-{number}"
            found, paths = self.client.repeat(row, sending, self.plan.shapes(seed + number), files, REPEAT_S)
            repeats.append(found)
            raw += paths
            self.done(len(found.tokens))
        return repeats, raw

    def _answers(self, row: Row, served: Served, model: Path) -> Answers:
        extra = extra_body(row, self.plan.choices)
        replies, seconds = ask(row, self.evaluation, served.url, self.plan.choices.seqs, extra, self.done)
        found = checked(self.evaluation, load_tokenizer(str(model)), replies, seconds)
        if found.failures:
            raise Faulty(f"{len(found.failures)} problems were not answered: {found.failures[0]}")
        return found


def lengths_of(row: Row, choices: Choices) -> Iterable[int | None]:
    """The draft lengths a row is measured with; None where it has none of its own."""
    return choices.drafts if row.name == "E" else [None]


def folder_name(row: Row) -> str:
    """Of the row's raw results."""
    return row.name.replace("'", "-groups")


def decisions(log: Path) -> dict[str, int] | None:
    """How often an adaptive policy chose which length; None where none decided."""
    if not log.is_file():
        return None
    counted = Counter(decision.k for decision in read_decisions(log))
    return {str(k): counted[k] for k in sorted(counted)}


def idle_lever(row: Row, figures: Mapping[str, Any], choices: Choices) -> str:
    """Why a lever that the server told to be on did nothing; empty where it did, or nobody can count it."""
    if row.name == "E" and not figures["acceptance"]:
        return "speculation was on and nothing was drafted"
    if row.name == "F" and not figures["decisions"]:
        return "the policy was on and decided nothing"
    budget, most = choices.thinking_budget, figures["think_tokens_most"] or 0
    if row.name == "G" and budget is not None and most > budget + 1:  # the mark that ends it may be counted
        return f"a reply thought for {most} tokens, above the budget of {budget}"
    return ""
