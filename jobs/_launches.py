"""The commands of the local services: which process, which environment, which ports."""

import os
import sys
import tempfile
from pathlib import Path

from jobs._haproxy import haproxy_env
from jobs._services import HOST, Launch, free_port

OBJECT_STORE_BYTES = 1_000_000_000


def base_env() -> dict[str, str]:
    """This process's environment without settings that point at another cluster; the interpreter's folder leads PATH
    so that a submitted `python ...` is the same interpreter."""
    dropped = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "MLFLOW_TRACKING_URI")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    return env


def mlflow_url(port: int) -> str:
    """The address of the local MLflow."""
    return f"http://{HOST}:{port}"


def mlflow_launch(folder: Path, port: int) -> Launch:
    """MLflow on sqlite with one worker. More workers, or its job runner, starve each other on few cores."""
    home = folder / "mlflow"
    (home / "artifacts").mkdir(parents=True, exist_ok=True)
    url = mlflow_url(port)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", HOST, "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(home / "artifacts")]
    env = base_env() | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Launch("mlflow", command, env, {"http": port}, {"mlflow": url}, f"{url}/health")


def ray_launch(*, cpus: int = 8, dashboard_port: int = 0, gcs_port: int = 0, tracking_uri: str | None = None) -> Launch:
    """A Ray head on loopback. `cpus` is logical: fractions of them are asked for by the actors.

    Every port that is fixed by default is replaced by a free one, so that several heads fit on one machine. The
    temporary folder is short because socket paths under it may have no more than 107 characters.
    """
    names = ("gcs", "dashboard", "client", "agent", "agent_grpc", "metrics")
    ports = {name: free_port({"gcs": gcs_port, "dashboard": dashboard_port}.get(name, 0)) for name in names}
    temp_dir = tempfile.mkdtemp(prefix="ray-")
    options = {
        "port": ports["gcs"],
        "node-ip-address": HOST,
        "dashboard-host": HOST,
        "dashboard-port": ports["dashboard"],
        "ray-client-server-port": ports["client"],
        "dashboard-agent-listen-port": ports["agent"],
        "dashboard-agent-grpc-port": ports["agent_grpc"],
        "metrics-export-port": ports["metrics"],
        "num-cpus": cpus,
        "object-store-memory": OBJECT_STORE_BYTES,
        "temp-dir": temp_dir,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    command += [f"--{name}={value}" for name, value in options.items()]
    env = base_env() | {
        "RAY_AUTH_MODE": "disabled",  # loopback only; unset, Ray decides by whether a token file happens to exist
        "RAY_worker_niceness": "0",  # the default of 15 lets any other program starve the workers
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_agent_register_timeout_ms": "120000",
        # "A cluster of this machine alone": the node's address is then 127.0.0.1 and its ports are not open to the
        # network. Without it Ray replaces 127.0.0.1 by the outward address. Drivers outside a job need it too.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    env |= haproxy_env(Path(temp_dir))
    if tracking_uri:
        env["MLFLOW_TRACKING_URI"] = tracking_uri
    url = f"http://{HOST}:{ports['dashboard']}"
    urls = {"dashboard": url, "ray": f"{HOST}:{ports['gcs']}"}
    # The dashboard answers long before the node has joined; only then can actors be placed.
    return Launch("ray", command, env, ports, urls, f"{url}/nodes?view=summary", '"ALIVE"', temp_dir)
