"""Puts a run's parts together from its config; the only place that knows them all."""

import logging
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from pipeline.config import RunConfig, UserError
from pipeline.curriculum import kappa_rule
from pipeline.judge import JudgeFailure, PrefixRequest, PrefixResult
from pipeline.loop.collect import Collector, Prompts, starts_of
from pipeline.loop.issuing import Issuer
from pipeline.loop.pool import RolloutPool
from pipeline.loop.waiting import Waits
from pipeline.problems import Problem, load_problems, overlap
from pipeline.rewards import build, try_out
from pipeline.traces import Marks

logger = logging.getLogger(__name__)


class RemoteJudge:
    """The judge actor behind the judge's own interface."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    async def find_prefixes(self, requests: Sequence[PrefixRequest]) -> list[PrefixResult]:
        """One result a request; nothing is sent when there is nothing to judge."""
        if not requests:
            return []
        try:
            return await self.actor.find_prefixes.remote(list(requests))
        except RayTaskError as error:
            raise JudgeFailure(str(error.cause)) from None if isinstance(error.cause, JudgeFailure) else error
        except RayActorError as error:
            raise JudgeFailure(f"the judge's process is gone: {error}") from error

    async def counters(self) -> dict[str, int]:
        """The judge's counts since it started."""
        return await self.actor.counters.remote()

    async def warnings(self) -> list[str]:
        """What the judge warns of since it was last asked."""
        return await self.actor.warnings.remote()


def load_tokenizer(model_path: str) -> Any:
    """The model folder's tokenizer, as vLLM and the endpoint load it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_path)


def load_split(cfg: RunConfig, split: str) -> list[Problem]:
    """Training (`train`) or held-out (`held_out`) problems of a run."""
    return load_problems(getattr(cfg.problems, split), cfg.run.seed)


def unknown_pieces(tokenizer: Any, text: str) -> list[str]:
    """Pieces of `text` for which the tokenizer has only its unknown token, each once."""
    if tokenizer.unk_token_id is None or not text:
        return []
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    pairs = zip(found["input_ids"], found["offset_mapping"], strict=True)
    return list(dict.fromkeys(text[start:end] for token, (start, end) in pairs if token == tokenizer.unk_token_id))


def warn_of_unknown(tokenizer: Any, what: str, text: str) -> None:
    """Logs what of a text that goes into every prompt the model cannot read: training goes on, but not as meant."""
    if pieces := unknown_pieces(tokenizer, text):
        shown = ", ".join(repr(piece) for piece in pieces[:8]) + (", ..." if len(pieces) > 8 else "")
        logger.warning("%s (%.80r) has pieces that the model's tokenizer does not know: %s", what, text, shown)


def build_collector(cfg: RunConfig, pool: RolloutPool, judge: Any, waits: Waits) -> Collector:
    """The collector of a run. UserError for data, model or options that cannot work."""
    tokenizer = load_tokenizer(cfg.model.path)
    room = cfg.engine.max_model_len - cfg.rollout.max_new_tokens
    prompts = Prompts(tokenizer, cfg.problems.prompt_suffix, room)
    strategy = build(cfg.reward)
    try_out(strategy, cfg.rollout.group_size, cfg.rollout.max_new_tokens)
    problems = load_split(cfg, "train")
    warn_of_unknown(tokenizer, "problems.prompt_suffix", cfg.problems.prompt_suffix)
    for note in sorted({start.note for start in starts_of(strategy, problems[0], cfg)}):
        warn_of_unknown(tokenizer, f"what reward '{strategy.name}' adds to a prompt", note)
    fitting = prompts.fitting(problems, lambda problem: starts_of(strategy, problem, cfg))
    if len(fitting) < len(problems):
        left_out = len(problems) - len(fitting)
        logger.warning("%d of %d training prompts exceed %d tokens; left out", left_out, len(problems), room)
    if len(fitting) < cfg.rollout.prompts_per_step:
        raise UserError(
            f"{len(fitting)} training problems do not fill one step of rollout.prompts_per_step="
            f"{cfg.rollout.prompts_per_step}; add problems or lower it"
        )
    if cfg.problems.held_out:
        overlap(fitting, load_split(cfg, "held_out"))  # warns of prompts in both
    return Collector(
        cfg=cfg,
        issuer=Issuer(fitting, cfg.run.seed),
        prompts=prompts,
        marks=Marks.from_tokenizer(tokenizer, cfg.model.think_end),
        strategy=strategy,
        rule=kappa_rule(cfg.curriculum),
        pool=pool,
        judge=RemoteJudge(judge),
        waits=waits,
    )
