"""The endpoint that is measured: the one that runs, else one deployed for it; its replicas' processes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import httpx
import psutil

from jobs.serve import results_folder
from pipeline.config import RunConfig, UserError, check_model_folder
from pipeline.evaluation.endpoint import key_headers
from serve import client
from serve.first_snapshot import first_policy
from serve.policy import Policy, Wanted

REPLICA = "ServeReplica"  # of the title Ray gives a replica's process
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Target:
    """The endpoint, what it was asked to serve when it was found, and whether it was deployed here."""

    dashboard: str
    endpoint: client.Endpoint
    wanted: Wanted
    deployed: bool
    args: Mapping[str, Any] = field(default_factory=dict)  # of the application, see `serve.arguments`

    @property
    def policy(self) -> Policy:
        return self.wanted.policy


def find_or_deploy(cfg: RunConfig, dashboard: str) -> Target:
    """The running endpoint, or the config's model with `serve.replicas`, which stays up. UserError where a canary runs:
    the first swap would end it."""
    deployed = not _app(client.details(dashboard))
    if deployed:
        policy = first_policy(cfg, results_folder(cfg))
        print(f"nothing is deployed: deploying {cfg.model.path}, {cfg.serve.replicas} replica(s)", flush=True)
        client.deploy(dashboard, cfg, policy.folder, policy)
    now = client.details(dashboard)
    wanted = client.wanted_now(now)
    if wanted.canary:
        raise UserError(f"a canary of version {wanted.canary.version} runs; promote it or end it first")
    endpoint = client.status(dashboard)
    if not endpoint.replicas:
        raise UserError(f"no replica of the endpoint at {endpoint.url} answers; see `python -m jobs.services status`")
    if not deployed:
        told = (
            f"the endpoint at {endpoint.url} runs already and is measured as it is: {len(endpoint.replicas)} replica(s)"
        )
        other = len(endpoint.replicas) != cfg.serve.replicas
        print(f"{told}, not the {cfg.serve.replicas} of serve.replicas" if other else told, flush=True)
    return Target(dashboard, endpoint, wanted, deployed, _app(now).get("args") or {})


def _app(now: Mapping[str, Any]) -> dict[str, Any]:
    """What the application was deployed with; empty where there is none."""
    return (now.get("applications", {}).get(client.APP) or {}).get("deployed_app_config") or {}


def http_client(clients: int, timeout_s: float) -> httpx.AsyncClient:
    """For many requests at a time; with the key in DECS_API_KEY, if any."""
    return httpx.AsyncClient(
        headers=key_headers(),
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=clients + 8, max_keepalive_connections=clients + 8),
        trust_env=False,
    )


def replica_process(state: dict[str, Any], dashboard: str) -> psutil.Process:
    """The process of a replica on this machine. UserError when it is elsewhere, gone, or no replica of this endpoint
    by its title."""
    if urlparse(dashboard).hostname not in LOOPBACK:
        raise UserError(f"the cluster at {dashboard} is not on this machine: its processes cannot be reached from here")
    pid = state.get("pid")
    try:
        process = psutil.Process(int(pid))
        title = " ".join(process.cmdline())
    except (TypeError, ValueError, psutil.Error) as error:
        raise UserError(f"the process {pid} of replica {state['replica']} is not on this machine ({error})") from None
    if REPLICA not in title or client.SERVER not in title or process.uids().real != os.getuid():
        raise UserError(f"process {pid} ({title[:120]}) is no replica of this endpoint; it is left alone")
    return process


def folder_of(policy: Policy) -> Path:
    """The served weights, which this machine must see. UserError when it does not."""
    return check_model_folder(policy.folder)
