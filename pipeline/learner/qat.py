"""Training a model for rounded weights: it computes with them rounded and learns to say what it says with them whole.

Only the weights that will be stored rounded are trained; embeddings, norms, biases and output head keep the bits they
have, so that the written folder computes what was trained. Gradients pass through the rounding unchanged.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.config import config_digest
from pipeline.learner.deepspeed_engine import forward_logits, full_state_dict, reference_logprobs
from pipeline.learner.policy_step import Collated
from pipeline.learner.supervised import Teacher, first_model, teach
from pipeline.quantization.asked import asked_grid
from pipeline.quantization.folder import Identity, write_rounded
from pipeline.quantization.grid import Grid
from pipeline.quantization.modules import divergence, put_on_grid
from pipeline.weights import MANIFEST_NAME, read_manifest


def qat_function(config: dict[str, Any]) -> None:
    """For Ray Train; `config` as for `supervised_function`, `base` the folder of the whole model."""
    teach(RoundedStudent(config))


class RoundedStudent(Teacher):
    """One rank: the engine trains the rounded model, `whole` is the model it learns from."""

    whole: torch.nn.Module
    layers: frozenset[str]

    @property
    def grid(self) -> Grid:
        """Of the config. UserError as `asked_grid` says."""
        return asked_grid(self.cfg)

    def model(self) -> torch.nn.Module:
        """The rounded model, whole weights inside; `whole` is set to a copy that computes as it did."""
        grid = self.grid
        model = first_model(self.base, self.cfg.run.seed)
        self.whole = copy.deepcopy(model).eval().requires_grad_(False)
        self.layers = frozenset(put_on_grid(model, grid))
        rounded = {f"{layer}.weight" for layer in self.layers}
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in rounded)
        return model

    def score(self, batch: Collated) -> Tensor:
        """KL divergence (nats) of the rounded model from the whole one at each of the N response tokens."""
        with torch.no_grad():
            wanted = _at(batch, self.whole(input_ids=batch.input_ids, use_cache=False).logits[:, batch.start :])
        return divergence(wanted, _at(batch, forward_logits(self.engine, batch.input_ids, batch.start)))

    def write(self) -> None:
        """The trained weights, rounded, as a snapshot in `<folder>/model`."""
        state, reference = full_state_dict(self.engine), reference_logprobs(self.engine)
        if self.rank:
            return
        base = Path(self.base)
        source = read_manifest(base) if (base / MANIFEST_NAME).is_file() else None
        digest = source.digest if source else None
        write_rounded(
            self.folder / "model",
            state.items(),
            self.grid,
            model_dir=base,
            layers=self.layers,
            identity=Identity(
                version=source.version if source else 0, step=self.plan.steps - 1, config_digest=config_digest(self.cfg)
            ),
            reference=reference,
            report={"grid": self.grid.name, "trained_steps": self.plan.steps, "source_digest": digest},
        )


def _at(batch: Collated, logits: Tensor) -> Tensor:
    return logits[batch.rows, batch.places]
