"""A command's own Ray starts again where Ray's fixed limit was too short, and leaves nothing of the failed start."""

import subprocess
import sys

import psutil
import pytest

from jobs import _ray


class SlowRay:
    """Times out `failures` times, each time leaving a process behind."""

    def __init__(self, failures, message="The current node timed out during startup. This could happen"):
        self.failures, self.message, self.left = failures, message, []

    def init(self, address, **options):
        assert address == "local" and options["_node_ip_address"] == "127.0.0.1"
        if len(self.left) < self.failures:
            self.left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
            raise Exception(self.message)
        return "context"


@pytest.fixture
def slow_ray(monkeypatch):
    def use(*args):
        ray = SlowRay(*args)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return use


def test_a_start_that_timed_out_is_tried_again_and_cleaned_up(slow_ray):
    ray = slow_ray(2)
    assert _ray._start("test") == "context"
    assert len(ray.left) == 2 and not any(psutil.pid_exists(process.pid) for process in ray.left)


def test_the_third_time_out_is_told(slow_ray):
    ray = slow_ray(3)
    with pytest.raises(Exception, match="timed out during startup"):
        _ray._start("test")
    assert len(ray.left) == 3
    ray.left[-1].kill()


def test_another_failure_is_not_tried_again(slow_ray):
    ray = slow_ray(3, "no space left")
    with pytest.raises(Exception, match="no space left"):
        _ray._start("test")
    assert len(ray.left) == 1 and psutil.pid_exists(ray.left[0].pid)
    ray.left[0].kill()
