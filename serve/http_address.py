"""Where Serve's HTTP proxy listens: one address for a whole cluster."""

import contextlib
import random
import socket
from collections.abc import Mapping
from typing import Any

from pipeline.config import UserError, schema

FREE_PORTS = range(20_000, 30_000)


def http_options(before: Mapping[str, Any], serve_cfg: schema.Serve) -> dict[str, Any]:
    """Where the proxy listens. It is one for the whole cluster and cannot move once it is there."""
    running = before.get("http_options") if before.get("proxies") else None
    if not running:
        return {"host": serve_cfg.host, "port": serve_cfg.port or _free_port(serve_cfg.host)}
    if serve_cfg.port not in (0, running["port"]):
        raise UserError(
            f"serve.port is {serve_cfg.port}, but Serve on this cluster already listens on {running['port']}: "
            "set that port or 0, or restart the cluster"
        )
    return running


def _free_port(host: str) -> int:
    """Between the ports of Ray's workers and those of replicas, and below those that the system gives out: one of these
    is soon somebody else's, and Serve listens later."""
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise UserError(f"no port of {FREE_PORTS.start} to {FREE_PORTS.stop - 1} is free on {host}: name one in serve.port")
