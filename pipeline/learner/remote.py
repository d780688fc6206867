"""Calls to the controller actor. Each has a deadline, and its error says who waited for what."""

from typing import Any

import ray


class ControllerClient:
    """One rank's line to the actor `name` in `namespace`; a call that takes longer than `deadline_s` seconds raises
    `TimeoutError`. Raises `RuntimeError` where there is no such actor."""

    def __init__(self, name: str, namespace: str, deadline_s: float) -> None:
        self.name, self.deadline_s = name, deadline_s
        try:
            self._actor = ray.get_actor(name, namespace=namespace)
        except ValueError as error:
            raise RuntimeError(f"the learner finds no controller {name!r} in namespace {namespace!r}") from error

    def call(self, method: str, *args: Any) -> Any:
        """The actor method's answer; its own exceptions pass through."""
        try:
            return ray.get(getattr(self._actor, method).remote(*args), timeout=self.deadline_s)
        except ray.exceptions.GetTimeoutError as error:
            shown = ", ".join(str(arg) for arg in args if isinstance(arg, int | str))
            raise TimeoutError(
                f"the learner waited {self.deadline_s:g} s for controller {self.name!r} to answer {method}({shown})"
            ) from error
