"""What commands that teach a model share: the empty model, its tracker, the supervised run and its bar."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.config import RunConfig, WarmStart


def empty_model(tokenizer: Any, plan: WarmStart, positions: int, folder: Path) -> Path:
    """A model folder without weights: the shape of a Llama and its tokenizer."""
    from transformers import LlamaConfig

    tokenizer.save_pretrained(folder)
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=plan.hidden,
        intermediate_size=plan.intermediate,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.heads,
        head_dim=plan.hidden // plan.heads,
        max_position_embeddings=positions,
        initializer_range=0.05,
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)
    settings = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


@contextmanager
def tracked(cfg: RunConfig, folder: Path, kind: str, registered_model: str) -> Iterator[Any]:
    """The run's tracker as the actor `tracker`, its MLflow run open until the block ends."""
    import ray

    from pipeline.loop.remote import get
    from pipeline.tracking import Tracker, tracking_uri

    actor = ray.remote(Tracker).options(name="tracker", num_cpus=0)
    tracker = actor.remote(tracking_uri(cfg), cfg.tracking.experiment, registered_model)
    started = tracker.start.remote(cfg.run.name, cfg.model_dump(mode="json"), {"kind": kind})
    run_id = get(started, 120, "the tracker to start")
    status = "FAILED"
    try:
        print(f"run {cfg.run.name} in {folder}; MLflow run {run_id}", flush=True)
        yield tracker
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        ray.get(tracker.finish.remote(status), timeout=60)


def teach(
    cfg: RunConfig,
    plan: WarmStart,
    folder: Path,
    base: Path,
    make_draw: Callable[[RunConfig], Any],
    tracker: Any,
    function: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """The supervised run (or `function` in each rank) under Ray Train, with a bar; the model ends in `folder`/model.
    One that is there already (a run that goes on with more steps) is kept beside it, under its digest."""
    import ray

    from pipeline.learner.supervised import fit_supervised, supervised_function
    from pipeline.weights import read_manifest

    model = folder / "model"
    if model.is_dir():
        kept = folder / f"model-{read_manifest(model).digest[:12]}"
        shutil.rmtree(kept, ignore_errors=True)
        model.rename(kept)
    with _progress(plan.steps, tracker):
        namespace = str(ray.get_runtime_context().namespace)
        fit_supervised(cfg, plan, folder, str(base), make_draw, namespace, function or supervised_function)


@contextmanager
def _progress(steps: int, tracker: Any) -> Iterator[None]:
    """A bar with the loss of the last logged step, for as long as the block runs."""
    import ray

    stopping = threading.Event()

    def poll() -> None:
        bar: tqdm | None = None
        while not stopping.wait(5):
            losses = ray.get(tracker.history.remote(), timeout=60).get("warm_start/loss")
            if not losses:
                continue
            last = max(losses)
            bar = bar or tqdm(total=steps, initial=last, unit="step", mininterval=10, disable=None)
            bar.set_postfix(loss=f"{losses[last]:.4f}", refresh=False)
            bar.update(last - bar.n)

    thread = threading.Thread(target=poll, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(timeout=70)
