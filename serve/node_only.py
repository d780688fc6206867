"""Keeps a replica's internal ports off the network."""

from typing import Any

import ray
from ray._common.network_utils import get_localhost_ip
from ray.serve._private import replica

EVERYWHERE = "[::]"


def bind_to_node() -> None:
    """Ray Serve binds each replica's internal gRPC server, which unpickles what it is sent, on every interface of the
    machine. From here on it listens on the node's own address, which is what the others dial: 127.0.0.1 on a head that
    was started on loopback. Call it in the replica, before it is initialised."""
    add_port = replica.add_port_to_grpc_server
    if getattr(add_port, "node_only", False):
        return

    def add_port_on_node(server: Any, address: str) -> int:
        return add_port(server, address.replace(EVERYWHERE, ray.util.get_node_ip_address()))

    add_port_on_node.node_only = True
    replica.add_port_to_grpc_server = add_port_on_node


def bind_http_to_loopback() -> None:
    """For a replica that only the proxy on its own node asks over HTTP (a router): where the endpoint listens for other
    machines, Ray would open its port to them too. Call it in the replica, before it is initialised."""
    start = replica.start_asgi_http_server
    if getattr(start, "loopback_only", False):
        return

    async def start_on_loopback(app: Any, options: Any, **more: Any) -> Any:
        return await start(app, options.model_copy(update={"host": get_localhost_ip()}), **more)

    start_on_loopback.loopback_only = True
    replica.start_asgi_http_server = start_on_loopback
