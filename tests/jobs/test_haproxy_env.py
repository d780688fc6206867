"""The settings of HAProxy, and the wrapper that keeps its own ports on loopback."""

import os
import subprocess

from jobs._haproxy import haproxy_env


def test_every_head_has_files_and_ports_of_its_own(tmp_path):
    first, second = haproxy_env(tmp_path / "a"), haproxy_env(tmp_path / "b")
    apart = [name for name in first if name.endswith(("_PORT", "_LOC", "_PATH", "_BASE", "_FILE"))]
    assert len(apart) == 10 and all(first[name] != second[name] for name in apart)


def test_the_wrapper_moves_metrics_and_statistics_to_loopback_and_does_not_splice(tmp_path):
    env = haproxy_env(tmp_path)
    metrics, stats = env["RAY_SERVE_HAPROXY_METRICS_PORT"], env["RAY_SERVE_HAPROXY_STATS_PORT"]
    config = tmp_path / "haproxy.cfg"
    config.write_text(
        f"defaults\n    option abortonclose\n    option splice-request\n    option splice-response\n"
        f"frontend prometheus\n    bind :{metrics}\n    mode http\n    timeout client 5s\n"
        f"frontend http_frontend\n    bind *:18999\n    mode http\n    timeout client 5s\n"
        f"listen stats\n  bind *:{stats}\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n"
    )
    wrapper = env["RAY_SERVE_HAPROXY_BINARY_PATH"]
    assert os.access(wrapper, os.X_OK)
    checked = subprocess.run(
        [wrapper, "-c", "-f", str(config)], capture_output=True, text=True, timeout=30, check=False
    )
    assert checked.returncode == 0, checked.stderr
    binds = [line.strip() for line in config.read_text().splitlines() if "bind" in line]
    assert "splice" not in config.read_text() and "abortonclose" in config.read_text()
    assert binds == [f"bind 127.0.0.1:{metrics}", "bind *:18999", f"bind 127.0.0.1:{stats}"]
