"""What training for rounded weights learns from and is measured by: the model's own answers, sampled once a run."""

import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import RunConfig, UserError, write_whole

Answer = tuple[list[int], list[int]]  # prompt ids, response ids


def sampled(cfg: RunConfig, folder: Path) -> Path:
    """The file of answers, one {prompt, response} a line in random order: those of `qat.held_out` come first. Sampled
    unless it is there. Ray must be connected."""
    file = folder / f"answers-{_digest(cfg)}.jsonl"
    if file.is_file():
        return file
    from tqdm import tqdm

    from pipeline.loop.assemble import load_split, load_tokenizer
    from pipeline.loop.evaluate import EvaluationEngine

    problems, tokenizer = load_split(cfg, "train"), load_tokenizer(cfg.model.path)
    asked = cfg.model_copy(update={"evaluation": cfg.evaluation.model_copy(update={"samples": cfg.qat.samples})})
    total = len(problems) * cfg.qat.samples
    with tqdm(total=total, desc="sampling", unit="answer", disable=None, file=sys.stderr) as bar:
        with EvaluationEngine(asked, cfg.model.path) as engine:
            traces = engine.sample(asked, tokenizer, problems, bar.update)
    rows = [{"prompt": list(trace.prompt_ids), "response": list(trace.token_ids)} for trace in traces]
    rows = [row for row in rows if row["response"]]
    random.Random(f"qat/{cfg.run.seed}").shuffle(rows)
    write_whole(file, "".join(json.dumps(row) + "\n" for row in rows))
    return file


def read_answers(file: str | Path, share: float) -> tuple[list[Answer], list[Answer]]:
    """(answers to learn from, answers held out): the first `share` of the file is held out, at least one."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    rows = [(row["prompt"], row["response"]) for row in map(json.loads, lines)]
    held_out = max(1, round(share * len(rows)))
    if len(rows) <= held_out:
        raise UserError(f"{len(rows)} answers leave none to learn from; give problems.train more problems")
    return rows[held_out:], rows[:held_out]


def make_draw(file: str, cfg: RunConfig) -> Callable[[random.Random, bool], Answer]:
    """Draws a random answer to learn from; runs in each rank."""
    rows, _ = read_answers(file, cfg.qat.held_out)
    return lambda rng, plain: rng.choice(rows)


def compare(cfg: RunConfig, base: Path, trained: Path, answers: Path) -> dict[str, Any]:
    """Held-out answers under the whole model, the model rounded to nearest, and the trained one as it was stored."""
    import torch
    from transformers import AutoModelForCausalLM

    from pipeline.quantization.asked import asked_grid
    from pipeline.quantization.folder import load_rounded
    from pipeline.quantization.modules import on_grid
    from pipeline.weights import read_manifest

    grid = asked_grid(cfg)
    learned, held_out = read_answers(answers, cfg.qat.held_out)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, use_safetensors=True).eval()
    whole = list(_logprobs(model, held_out))
    with on_grid(model, grid):
        nearest = _told(whole, _logprobs(model, held_out), held_out)
    load_rounded(model, trained, grid)
    told = {
        "whole": _told(whole, whole, held_out),
        "rounded to nearest": nearest,
        "trained": _told(whole, _logprobs(model, held_out), held_out),
    }
    digest = read_manifest(trained).digest
    return {"grid": grid.name, "steps": cfg.qat.steps, "answers": len(learned), "digest": digest, "held_out": told}


def _logprobs(model: Any, answers: Sequence[Answer]) -> Any:
    """Log-probabilities [T, V] at each response token, an answer at a time."""
    import torch

    for prompt, response in answers:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        yield logits.float().log_softmax(-1)


def _told(whole: Sequence[Any], found: Any, answers: Sequence[Answer]) -> dict[str, float]:
    """Means a token: KL divergence from the whole model, and the loss on the sampled tokens (both nats)."""
    import torch

    from pipeline.quantization.modules import divergence

    kl = loss = 0.0
    for there, here, (_, response) in zip(whole, found, answers, strict=True):
        kl += float(divergence(there, here).sum())
        loss -= float(here.gather(-1, torch.tensor(response)[:, None]).sum())
    tokens = sum(len(response) for _, response in answers)
    return {"kl": kl / tokens, "loss": loss / tokens, "tokens": tokens, "answers": len(answers)}


def _digest(cfg: RunConfig) -> str:
    from pipeline.evaluation.model import folder_digest

    plain = cfg.model_dump(mode="json")
    parts = {name: plain[name] for name in ("problems", "evaluation", "rollout")}
    parts |= {"seed": cfg.run.seed, "samples": cfg.qat.samples, "dtype": cfg.engine.dtype}
    parts["model"] = folder_digest(Path(cfg.model.path))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
