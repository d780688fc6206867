"""Whether there is room on the cluster: told at once, or after a deadline, with what is asked and what is there."""

import pytest
import ray

from pipeline.config import UserError, load_config
from pipeline.loop import run
from pipeline.loop.run import Watch, wait_for_room


@pytest.fixture
def cluster(monkeypatch):
    """Sets what the cluster has, and what is free at each look."""

    def has(total, *free):
        looks = list(free)
        monkeypatch.setattr(ray, "cluster_resources", lambda: total)
        monkeypatch.setattr(ray, "available_resources", lambda: looks.pop(0) if len(looks) > 1 else looks[0])

    monkeypatch.setattr(run.time, "sleep", lambda seconds: None)
    return has


def config(*overrides):
    return load_config(None, ["engine.device=cpu", "loop.placement_deadline_s=0.05", *overrides])


def test_room_at_once(cluster):
    cluster({"CPU": 4}, {"CPU": 4})
    shown = []
    wait_for_room(config(), shown.append)
    assert shown == []


def test_a_cluster_that_is_too_small_is_told_at_once(cluster):
    cluster({"CPU": 2}, {"CPU": 2})
    with pytest.raises(UserError) as caught:
        wait_for_room(config(), lambda line: pytest.fail("waited"))
    text = str(caught.value)
    assert "the cluster is too small: needs 2.25 CPU, has 2" in text
    assert "2 rollout engine x 0.5 CPU + 0 GPU" in text and "2 learner rank x 0.5 CPU" in text and "\n" not in text


def test_missing_gpus_are_named(cluster):
    cluster({"CPU": 64}, {"CPU": 64})
    with pytest.raises(UserError, match="needs 4 GPU, has 0"):
        wait_for_room(config("engine.device=auto", "rollout.gpus_per_engine=1", "learner.gpus_per_rank=1"), print)


def test_room_that_becomes_free(cluster):
    cluster({"CPU": 4}, {"CPU": 1}, {}, {"CPU": 3})
    shown = []
    wait_for_room(config("loop.placement_deadline_s=60"), shown.append)
    assert shown == [
        "waiting for room on the cluster: needs 2.25 CPU, has 1 free",
        "waiting for room on the cluster: needs 2.25 CPU, has 0 free",
    ]


def test_room_that_others_keep(cluster):
    cluster({"CPU": 4}, {"CPU": 1})
    with pytest.raises(UserError, match="other jobs hold what this run needs: needs 2.25 CPU, has 1 free after 0.05 s"):
        wait_for_room(config(), lambda line: None)


def test_contradicting_options(cluster):
    cluster({"CPU": 64}, {"CPU": 64})
    with pytest.raises(UserError, match="gpus_per_engine"):
        wait_for_room(config("rollout.gpus_per_engine=1"), print)


class Progress:
    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    @property
    def progress(self):
        return self

    def remote(self, after):
        self.asked.append(after)
        return self.answers.pop(0)


def test_watch_shows_each_line_once_and_counts_lost_looks(monkeypatch):
    def get(answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "get", get)
    two = {"lines": [(0, "one"), (1, "two")], "done": 2, "waits": []}
    controller = Progress(
        two, ray.exceptions.GetTimeoutError("late"), {"lines": [(2, "three")], "done": 3, "waits": []}
    )
    shown = []
    watch = Watch(controller, config(), shown.append)
    assert watch.poll() == two and watch.poll() is None and watch.poll()["done"] == 3
    assert shown == ["one", "two", "three"] and watch.lost == 1 and controller.asked == [-1, 1, 1]
