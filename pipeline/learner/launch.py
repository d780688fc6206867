"""Start the learner's worker group under Ray Train and wait for it."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from pipeline.config import UserError, user_error_in
from pipeline.config.schema import RunConfig

if TYPE_CHECKING:
    from ray.train import Result
    from ray.train.torch import TorchTrainer

KEPT_CHECKPOINTS = 2


def fit(
    cfg: RunConfig,
    controller_name: str,
    namespace: str,
    run_folder: str,
    storage_path: str,
    *,
    storage_filesystem: Any = None,
) -> "Result":
    """Train; blocks until the run ends, through up to `learner.max_failures` failures of the worker group.

    `cfg` has absolute paths. Ray Train keeps checkpoints under `storage_path`/`run.name` and resumes from the newest
    there; `storage_filesystem` is a pyarrow filesystem for stores that need an endpoint of their own. Raises
    `UserError` where a rank met one, else Ray Train's `TrainingFailedError`.
    """
    from ray.train import TrainingFailedError

    _check(cfg, storage_path)
    try:
        from pipeline.learner.train_function import train_function

        settings = {
            "run": cfg.model_dump(mode="json"),
            "controller": controller_name,
            "namespace": namespace,
            "run_folder": run_folder,
        }
        return run_trainer(torch_trainer(cfg, train_function, settings, storage_path, storage_filesystem))
    except TrainingFailedError as failure:
        for rank, error in sorted(getattr(failure, "worker_failures", {}).items()):
            mistake = user_error_in(error)
            if mistake is not None:
                raise UserError(f"learner rank {rank}: {mistake}") from failure
        raise


def run_trainer(trainer: "TorchTrainer") -> "Result":
    """`trainer.fit()` in a thread of its own, so that Ctrl-C ends the caller with KeyboardInterrupt.

    In the main thread Ray Train takes the signal over and ends the process with 0, past every clean-up.
    """
    done: Future[Result] = Future()

    def work() -> None:
        try:
            done.set_result(trainer.fit())
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            done.set_exception(error)

    threading.Thread(target=work, name="trainer", daemon=True).start()
    while True:
        try:
            return done.result(timeout=1)
        except TimeoutError:
            if done.done():
                raise


def torch_trainer(
    cfg: RunConfig,
    function: Callable[[dict[str, Any]], None],
    settings: dict[str, Any],
    storage_path: str,
    filesystem: Any = None,
) -> "TorchTrainer":
    """Ray Train's trainer for `learner.ranks` ranks that each run `function(settings)`."""
    from ray.train import CheckpointConfig, FailureConfig, ScalingConfig
    from ray.train import RunConfig as TrainRunConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    learner = cfg.learner
    gpu = learner.gpus_per_rank > 0
    resources = {"CPU": learner.cpus_per_rank} | ({"GPU": learner.gpus_per_rank} if gpu else {})
    return TorchTrainer(
        function,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo", timeout_s=int(3 * cfg.loop.step_deadline_s)),
        scaling_config=ScalingConfig(num_workers=learner.ranks, use_gpu=gpu, resources_per_worker=resources),
        run_config=TrainRunConfig(
            name=cfg.run.name,
            storage_path=storage_path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=learner.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=KEPT_CHECKPOINTS),
            worker_runtime_env={"env_vars": {} if gpu else {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}},
        ),
    )


def _check(cfg: RunConfig, storage_path: str) -> None:
    if cfg.learner.micro_batch_tokens < cfg.engine.max_model_len:
        raise UserError(
            f"learner.micro_batch_tokens={cfg.learner.micro_batch_tokens} cannot hold one row of "
            f"engine.max_model_len={cfg.engine.max_model_len} tokens; raise the first or lower the second"
        )
    earlier = os.path.join(storage_path, cfg.run.name)
    if not cfg.run.resume and os.path.isdir(earlier) and os.listdir(earlier):
        raise UserError(
            f"run.resume is false but {earlier} holds the training state of an earlier run {cfg.run.name!r}; "
            "choose another run.name, or resume"
        )
