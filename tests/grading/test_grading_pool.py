"""Deadlines, dead workers, threads, Ray actors: a checker that fails says so, and never hangs."""

import asyncio
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline import grading
from pipeline.grading import Failure, Verdict, counters, grade, same_answer, symbolic, worker
from pipeline.grading import grade as grade_function
from pipeline.grading.pool import Pool

TOWER = r"9^{9^{9^{9}}}"
GOLD, ANSWER = r"2\sqrt{3}", r"So we get \boxed{\sqrt{12}}"  # needs algebra, so it reaches a worker


@pytest.fixture
def make_pool():
    pools = []

    def make(*args, **kwargs):
        pools.append(Pool(*args, **kwargs))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


QUICK = """
import json, sys, time
print("{}", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    while request["answer"] == "for ever":
        time.sleep(1)
    print(json.dumps({"verdict": "right"}), flush=True)
"""  # a worker without algebra: everything is right, save that some questions never end


def script(tmp_path, body):
    """A worker command that runs `body` before (or instead of) the real worker's loop."""
    path = tmp_path / "worker.py"
    path.write_text(textwrap.dedent(body))
    return [sys.executable, str(path)]


def test_threads_all_get_the_verdict():
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(threads.map(lambda _: grade(ANSWER, GOLD), range(64)))
        verdicts += threads.map(lambda _: grade(r"\boxed{0.625}", r"\frac{5}{8}"), range(64))
    assert set(verdicts) == {Verdict.RIGHT}
    assert counters()["calls"] == counters()["right"] == 128
    assert counters()["unknown"] == 0


def test_the_main_thread_gets_them_too():
    verdicts = [grade(r"So we get \boxed{0.625}", r"\frac{5}{8}") for _ in range(64)]
    assert verdicts == [Verdict.RIGHT] * 64 and counters()["unknown"] == 0


def test_event_loops_get_them_through_threads():
    async def both():
        return await asyncio.gather(*(asyncio.to_thread(grade, ANSWER, GOLD) for _ in range(8)))

    assert set(asyncio.run(both())) == {Verdict.RIGHT}


def test_a_comparison_past_its_deadline_is_unknown_and_its_worker_is_replaced(make_pool, tmp_path):
    pool = make_pool(deadline_s=0.5, command=script(tmp_path, QUICK))
    assert pool.compare("x", "y").verdict is Verdict.RIGHT
    (first,) = pool._alive
    reply = pool.compare("for ever", "y")
    assert (reply.verdict, reply.failure) == (Verdict.UNKNOWN, Failure.DEADLINE)
    assert first.process.returncode is not None
    assert pool.compare("x", "y").verdict is Verdict.RIGHT
    assert first not in pool._alive


@pytest.mark.slow
def test_a_tower_of_powers_ends_by_the_deadline(make_pool):
    pool = make_pool(deadline_s=2.0)
    assert pool.compare("1", r"\sqrt{1}").verdict is Verdict.RIGHT  # started, so that the clock below is the deadline's
    begin = time.monotonic()
    assert pool.compare(TOWER, "5").failure is Failure.DEADLINE
    assert time.monotonic() - begin < 10
    assert pool.compare(r"\sqrt{12}", r"2\sqrt{3}").verdict is Verdict.RIGHT


def test_every_failure_is_counted_by_its_reason(monkeypatch, make_pool, tmp_path):
    slow = make_pool(deadline_s=0.3, command=script(tmp_path, "print('{}', flush=True); import time; time.sleep(60)"))
    monkeypatch.setattr("pipeline.grading.grader.shared_pool", lambda: slow)
    assert grade(ANSWER, GOLD) is Verdict.UNKNOWN
    assert same_answer("5", "") is Verdict.UNKNOWN
    assert grade(r"\boxed{5}", "x+" * 2500 + "1") is Verdict.UNKNOWN
    seen = counters()
    assert (seen["calls"], seen["unknown"], seen["unknown_deadline"], seen["unknown_gold"]) == (3, 3, 1, 2)


@pytest.mark.slow
def test_an_error_of_the_parser_is_counted_and_is_not_wrong(monkeypatch, make_pool, tmp_path):
    body = """
    from pipeline.grading import symbolic, worker
    def broken(*args, **kwargs):
        if "12" in args[0]:
            raise ValueError("parser is broken")
        return real(*args, **kwargs)
    real, symbolic.parse = symbolic.parse, broken
    worker.main()
    """
    pool = make_pool(deadline_s=20, command=script(tmp_path, body))
    monkeypatch.setattr("pipeline.grading.grader.shared_pool", lambda: pool)
    assert grade(ANSWER, GOLD) is Verdict.UNKNOWN
    assert counters()["unknown_exception"] == 1
    assert counters()["wrong"] == 0


def test_an_error_within_the_worker_is_reported_as_one(monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("parser is broken")

    monkeypatch.setattr(symbolic, "parse", broken)
    reply = worker.answer({"answer": r"\sqrt{12}", "gold": r"2\sqrt{3}"})
    assert (reply["verdict"], reply["reason"]) == ("unknown", "exception")
    assert "parser is broken" in reply["detail"]


def test_a_reference_that_cannot_be_read_is_reported_as_such():
    reply = worker.answer({"answer": "5", "gold": "A) 10^{-4} eV"})
    assert (reply["verdict"], reply["reason"]) == ("unknown", "gold")


@pytest.mark.parametrize("body", ["raise SystemExit(3)", "print('{}', flush=True); input(); raise SystemExit(3)"])
def test_a_worker_that_dies_is_unknown(body, make_pool, tmp_path):
    pool = make_pool(command=script(tmp_path, body))
    for _ in range(2):  # the seat is free again
        assert pool.compare("x", "y").failure is Failure.POOL


def test_a_reply_that_is_none_is_unknown(make_pool, tmp_path):
    pool = make_pool(command=script(tmp_path, "print('{}', flush=True); input(); print('hello', flush=True); input()"))
    assert pool.compare("x", "y").failure is Failure.POOL


def test_a_command_that_cannot_run_is_unknown(make_pool):
    assert make_pool(command=["/nonexistent/python"]).compare("x", "y").failure is Failure.POOL


def test_a_busy_pool_does_not_wait_for_ever(monkeypatch, make_pool):
    monkeypatch.setattr("pipeline.grading.pool.SEAT_DEADLINE_S", 0.1)
    assert make_pool(workers=0).compare("x", "y").failure is Failure.POOL


def test_an_idle_worker_that_died_is_replaced(make_pool, tmp_path):
    pool = make_pool(deadline_s=20, command=script(tmp_path, QUICK))
    assert pool.compare("x", "y").verdict is Verdict.RIGHT
    (worker,) = pool._alive
    worker.process.kill()
    worker.process.wait()
    assert pool.compare("x", "y").verdict is Verdict.RIGHT


def test_closing_ends_the_workers(make_pool, tmp_path):
    pool = make_pool(deadline_s=20, command=script(tmp_path, QUICK))
    pool.compare("x", "y")
    (worker,) = pool._alive
    pool.close()
    assert worker.process.returncode is not None
    assert pool.compare("x", "y").failure is Failure.POOL


@pytest.mark.parametrize("answer", ["9**9**9**9", r"\frac{", "@@@ ### }{", "5" * 10_000, "\\boxed{" * 50, "{" * 3000])
def test_garbage_is_wrong_or_unknown(answer):
    assert same_answer(answer, "5") in (Verdict.WRONG, Verdict.UNKNOWN)


def test_importing_loads_no_algebra():
    heavy = ("sympy", "math_verify", "ray", "torch")
    check = f"import sys, pipeline.grading; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def _grade_many(count):
    verdicts = [grade_function(ANSWER, GOLD) for _ in range(count)]
    verdicts += [grade_function(r"So we get \boxed{0.625}", r"\frac{5}{8}") for _ in range(count)]
    return [str(v) for v in verdicts]


class ThreadedGrader:
    def grade(self, count):
        return _grade_many(count)

    def counters(self):
        return grading.counters()


class AsyncGrader:
    async def grade(self, count):
        return _grade_many(count)

    async def grade_in_threads(self, count):
        return [str(await asyncio.to_thread(grade_function, ANSWER, GOLD)) for _ in range(count)]

    async def counters(self):
        return grading.counters()


@pytest.mark.slow
def test_inside_ray_actors(local_ray):
    threaded = local_ray.remote(ThreadedGrader).options(max_concurrency=4, num_cpus=0).remote()
    single = local_ray.remote(AsyncGrader).options(num_cpus=0).remote()
    calls = [threaded.grade.remote(16) for _ in range(4)] + [single.grade.remote(16) for _ in range(4)]
    calls += [single.grade_in_threads.remote(8) for _ in range(2)]
    verdicts = [verdict for part in local_ray.get(calls, timeout=240) for verdict in part]
    assert set(verdicts) == {"right"}
    seen = local_ray.get([threaded.counters.remote(), single.counters.remote()], timeout=60)
    assert [s["unknown"] for s in seen] == [0, 0]
    assert [s["right"] for s in seen] == [128, 144]
