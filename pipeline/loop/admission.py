"""How far rollouts may run ahead of training, so that nothing finished has to be thrown away."""


def capacity(version: int, max_staleness: int, batch_groups: int, admitted_groups: int) -> int:
    """How many more groups may be admitted now.

    With weights `version`, batches for steps up to `version + max_staleness` may be under way or done; each takes
    `batch_groups`. `admitted_groups` counts groups admitted since step 0 that were trained or may still be trained.
    At max_staleness 0 this is the batch of the current step alone (synchronous).
    """
    return max(0, (version + max_staleness + 1) * batch_groups - admitted_groups)


def staleness(step: int, oldest_version: int) -> int:
    """Optimiser steps between the weights that made a token and those trained on it at `step`."""
    return step - oldest_version
