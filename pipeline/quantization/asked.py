"""What a config asks a model to be trained for."""

from pipeline.config import RunConfig, UserError
from pipeline.quantization.grid import Grid


def asked_grid(cfg: RunConfig) -> Grid:
    """The grid of the `qat` section. UserError where it has no bits, or ranks would hold parts of what is rounded
    together."""
    if cfg.qat.bits is None:
        raise UserError("qat.bits is not set: there is nothing to train for; set it to 4 for INT4 weights")
    if cfg.learner.zero_stage == 3:
        raise UserError("learner.zero_stage is 3, which shards the rows that are rounded together; use 0, 1 or 2")
    return Grid(cfg.qat.bits, cfg.qat.group)
