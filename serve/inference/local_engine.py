"""A vLLM engine of this process's own that answers inferences."""

import asyncio
import itertools
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pipeline.config import RunConfig, UserError, check_model_folder, resolve_paths
from pipeline.engine.model_folder import ModelFolder
from pipeline.engine.options import EngineOptions, engine_env
from pipeline.evaluation.model import folder_digest
from pipeline.weights import MANIFEST_NAME, read_manifest
from serve.engine_config import FRONTEND, effective_engine
from serve.inference.request import CAP, Abilities, Ask, abilities
from serve.inference.result import InferenceFailed, Phase, Usage, acceptance_of
from serve.inference.thinking_marks import ThinkingMarks
from serve.levers import check_levers, engine_kwargs
from serve.policy import fingerprint


class LocalEngine:
    """One engine with the model and the levers of a config. Lives on one event loop.

    `counters`: requests that were `aborted`, and `most_running`, the most sequences in one step.
    """

    def __init__(self, cfg: RunConfig, counters: Counter[str]) -> None:
        self._cfg = resolve_paths(cfg)
        self._folder = check_model_folder(self._cfg.model.path)
        self._options = EngineOptions.from_config(cfg.engine)
        model = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
        check_levers(self._cfg, self._options.device, model=model)
        ModelFolder(self._folder).check_length(self._options.max_model_len)
        self._arguments = {
            name: value for name, value in engine_kwargs(self._options, self._cfg).items() if name not in FRONTEND
        }
        if "kv_transfer_config" in self._arguments:
            raise UserError("kv.tiers and kv.transfer are the endpoint's; an engine of one's own does without them")
        self.who, self.counters = f"the engine of {self._folder.name}", counters
        self.can = Abilities()
        self._numbers = itertools.count()
        self._engine: Any = None

    async def start(self) -> None:
        """Loads the model. UserError for what vLLM refuses, TimeoutError after `serve.start_deadline_s`."""
        seconds = self._cfg.serve.start_deadline_s
        try:
            self._engine = await asyncio.wait_for(asyncio.to_thread(self._build), seconds)
        except TimeoutError:
            raise TimeoutError(f"{self.who} did not start within {seconds:g} s (serve.start_deadline_s)") from None
        except ValueError as error:  # vLLM reports settings that it cannot use so
            raise UserError(f"{self.who} cannot run with these options: {error}") from error
        config = self._engine.vllm_config
        self.can = abilities(effective_engine(config, None, self._engine.log_stats))
        self._tokenizer = self._engine.get_tokenizer()
        self._marks = ThinkingMarks.of(config, self._tokenizer)
        self._weights = await asyncio.to_thread(weights_of, self._folder)

    def _build(self) -> Any:
        # What is printed is the caller's: vLLM's log goes to stderr.
        own = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
        os.environ.update(engine_env(self._options) | own)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from serve.inference.running import watch

        config = AsyncEngineArgs(model=str(self._folder), **self._arguments).create_engine_config()
        if self._options.device == "cpu":
            config.parallel_config.distributed_executor_backend = "uni"  # as the endpoint's engines
        return AsyncLLM.from_vllm_config(config, stat_loggers=[watch(self.counters)], disable_log_stats=True)

    async def replies(self, ask: Ask) -> AsyncIterator[tuple[Phase, str] | Usage]:
        """The reply's text by phase, as it comes, and at last its `Usage`. Leaving the iterator aborts the request.

        UserError for what vLLM refuses, InferenceFailed for what it fails at (a full queue, a dead engine).
        """
        from vllm.exceptions import VLLMClientError, VLLMError

        try:
            async with aclosing(self._parts(ask)) as parts:
                async for part in parts:
                    yield part
        except VLLMClientError as error:
            raise UserError(str(error)) from error
        except VLLMError as error:
            raise InferenceFailed(f"{self.who} gave no whole reply: {error}") from error

    async def _parts(self, ask: Ask) -> AsyncIterator[tuple[Phase, str] | Usage]:
        prompt = self._prompt(ask)
        params, parting = self._params(ask, len(prompt)), self._marks.parting(prompt)
        token_ids, last = [], None
        name = f"inference-{next(self._numbers)}"
        outputs = self._engine.generate({"prompt_token_ids": prompt}, params, name, priority=ask.priority)
        try:
            async with aclosing(outputs):
                async for last in outputs:
                    token_ids.extend(last.outputs[0].token_ids)
                    for part in parting.feed(last.outputs[0].text):
                        yield part
        finally:
            self.counters["aborted"] += last is None or not last.finished
        for part in parting.rest():
            yield part
        yield self._usage(prompt, token_ids, last.outputs[0])

    def _prompt(self, ask: Ask) -> list[int]:
        """Token ids [P], through the model's chat template. UserError where they leave no room for a reply."""
        rendered = self._tokenizer.apply_chat_template(list(ask.messages), tokenize=False, add_generation_prompt=True)
        prompt = list(self._tokenizer.encode(rendered, add_special_tokens=False))
        longest, wanted = self._options.max_model_len, ask.max_tokens or 1
        if len(prompt) + wanted > longest:
            raise UserError(
                f"a prompt of {len(prompt)} tokens and {wanted} more do not fit into engine.max_model_len ({longest}); "
                "shorten it, lower max_tokens, or raise engine.max_model_len"
            )
        return prompt

    def _params(self, ask: Ask, prompt_tokens: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        given = {
            "max_tokens": ask.max_tokens or self._options.max_model_len - prompt_tokens,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "seed": ask.seed,
            "thinking_token_budget": ask.thinking_budget,
            "extra_args": None if ask.draft_cap is None else {CAP: ask.draft_cap},
        }
        usual = self._engine.model_config.get_diff_sampling_param()
        chosen = usual | {name: value for name, value in given.items() if value is not None}
        # Marks must be seen, and may be special tokens; the end of the sequence is never in the text.
        return SamplingParams(output_kind=RequestOutputKind.DELTA, skip_special_tokens=False, **chosen)

    def _usage(self, prompt: Sequence[int], token_ids: Sequence[int], output: Any) -> Usage:
        reasoning = self._marks.reasoning_tokens(prompt, token_ids)
        drafts = output.spec_decode_metrics.to_dict() if output.spec_decode_metrics else {}
        return Usage(
            prompt_tokens=len(prompt),
            reasoning_tokens=reasoning,
            answer_tokens=len(token_ids) - reasoning,
            acceptance=acceptance_of(drafts),
            weights=self._weights,
            finish=output.finish_reason,
        )

    async def close(self) -> None:
        """Ends the engine's process; requests inside end with an error."""
        if self._engine is None:
            return
        engine, self._engine = self._engine, None
        if engine.output_handler is not None:
            engine.output_handler.cancel()  # else it reports the end of the process as a failure
        await asyncio.to_thread(engine.shutdown)
        engine.shutdown = _nothing  # its finalizer calls it once more, when the interpreter ends, and would fail


def _nothing(*args: object) -> None: ...


def weights_of(folder: Path) -> str:
    """The mark of a model folder's weights: of its manifest, or version 0 and a digest over its files."""
    if (folder / MANIFEST_NAME).is_file():
        manifest = read_manifest(folder)
        return fingerprint(manifest.version, manifest.digest)
    return fingerprint(0, folder_digest(folder))
