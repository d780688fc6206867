"""What every replica of a deployment says of itself. Replicas that do not answer are named, and hold nobody up."""

import asyncio
import pickle
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import serve
from ray.serve._private.common import ReplicaID, RequestMetadata
from ray.serve.handle import DeploymentHandle

METHOD = "policy_status"
ANSWER_S = 5.0
LIST_S = 5.0  # to hear from Serve which replicas there are
POLL_S = 0.05


class ReplicaStates:
    """Asks the replicas of this replica's own deployment. Who asks while an answer is under way gets that one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replica-states")  # not the loop's, which others need
        self._handle: DeploymentHandle | None = None
        self._asking: asyncio.Future[dict[str, Any]] | None = None

    async def __call__(self) -> dict[str, Any]:
        """`replicas`: the state of each that answered within `ANSWER_S`; `silent`: the names of the others.
        TimeoutError where Serve does not tell which there are."""
        if self._asking is None or self._asking.done():
            context = serve.get_replica_context()
            if self._handle is None:
                self._handle = serve.get_deployment_handle(context.deployment, context.app_name)
            loop = asyncio.get_running_loop()
            self._asking = loop.run_in_executor(self._thread, lambda handle: asked(replicas_of(handle)), self._handle)
        return await asyncio.shield(self._asking)


def replicas_of(handle: DeploymentHandle) -> list[ReplicaID]:
    """Those that Serve tells the handle of; found in the way of `ray.llm._internal.serve.utils.broadcast`."""
    if not handle.is_initialized:
        handle._init(_run_router_in_separate_loop=True)
    end = time.monotonic() + LIST_S
    while not handle.running_replicas_populated() or (router := _request_router(handle._router)) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"Serve did not tell within {LIST_S:g} s which replicas there are")
        time.sleep(POLL_S)
    return list(router.curr_replicas)


def _request_router(router: Any) -> Any:
    return getattr(getattr(router, "_asyncio_router", router), "request_router", None)


def asked(replicas: Iterable[ReplicaID]) -> dict[str, Any]:
    """The answers of those that answer within `ANSWER_S`, and the names of those that are gone, fail or are late."""
    names, silent, states = {}, [], []
    for replica in replicas:
        try:
            actor = ray.get_actor(replica.to_full_id_str(), namespace="serve")
        except ValueError:  # it is gone
            silent.append(replica.unique_id)
            continue
        names[actor.handle_request.remote(_metadata())] = replica.unique_id
    ready, late = ray.wait(list(names), num_returns=len(names), timeout=ANSWER_S) if names else ([], [])
    for call in ready:
        try:
            states.append(ray.get(call))
        except ray.exceptions.RayError:  # it died, or could not say: silent is all there is to know
            silent.append(names[call])
    return {"replicas": states, "silent": sorted([*silent, *(names[call] for call in late)])}


def _metadata() -> bytes:
    name = f"states-{uuid.uuid4()}"
    return pickle.dumps(RequestMetadata(request_id=name, internal_request_id=name, call_method=METHOD))
