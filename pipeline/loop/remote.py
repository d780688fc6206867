"""Results of actors: with a deadline that names whom it waits for, and a user's mistake told as one."""

from typing import Any

import ray

from pipeline.config import user_error_in


class RunFailed(RuntimeError):
    """The run ended early; the text says at which step and why."""


def get(reference: Any, seconds: float, whom: str) -> Any:
    """The value of `reference`. RunFailed, naming `whom`, after `seconds`; the UserError that the actor raised."""
    try:
        return ray.get(reference, timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        raise RunFailed(f"waited {seconds:g} s for {whom}") from None
    except ray.exceptions.RayError as error:
        if mistake := user_error_in(error):
            raise mistake from None
        raise
