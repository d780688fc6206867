"""For all tests: no time limit an example in hypothesis, and one way to a private local Ray."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")

# Ray turns token authentication on for the whole process, and for all its children, as soon as it finds a token file
# in the home folder; a later "disabled" then leaves one half of a cluster with it and the other without.
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}


MLFLOW_LEFTOVERS = ("mlruns", "mlflow.db")  # where MLflow writes when it is told no place


@pytest.fixture(autouse=True)
def no_mlflow_leftovers():
    """No test, and nothing it starts, lets MLflow write into the working directory."""
    there = {name for name in MLFLOW_LEFTOVERS if Path(name).exists()}
    yield
    left = {name for name in MLFLOW_LEFTOVERS if Path(name).exists()} - there
    assert not left, f"MLflow was used without a place of its own and left {sorted(left)} in {Path.cwd()}"


@pytest.fixture
def local_ray(monkeypatch):
    """A Ray of two CPUs for one test, whose workers find the project and the test's own namespace `test`."""
    import ray

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    root = str(Path(__file__).parents[1])
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        namespace="test",
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": root}},
    )
    yield ray
    ray.shutdown()
