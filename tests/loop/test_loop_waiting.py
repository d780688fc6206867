"""Every wait has a deadline and says whom it waits for; kept snapshots outlive their source."""

import asyncio
import shutil

import pytest

from pipeline.loop.snapshots import keep_copy
from pipeline.loop.waiting import DeadlineExceeded, Waits


async def never():
    await asyncio.Event().wait()


async def soon(value):
    await asyncio.sleep(0)
    return value


def test_result_passes_and_nothing_is_left():
    waits = Waits()
    assert asyncio.run(waits.within("the judge", 5, soon(3))) == 3
    assert waits.current() == []


def test_deadline_names_whom():
    waits = Waits()
    with pytest.raises(DeadlineExceeded, match="waited 0.01 s for the judge"):
        asyncio.run(waits.within("the judge", 0.01, never()))
    assert waits.current() == []


def test_errors_of_the_awaited_pass_also_its_own_timeout():
    async def fails(error):
        raise error

    for error in (KeyError("x"), TimeoutError("the store did not answer")):
        with pytest.raises(type(error), match=str(error).strip("'")) as caught:
            asyncio.run(Waits().within("the publisher", 60, fails(error)))
        assert not isinstance(caught.value, DeadlineExceeded)


def test_what_is_waited_for_shows_longest_first():
    async def scene():
        waits = Waits()
        with waits.note("the grader"):
            await asyncio.sleep(0.02)
            task = asyncio.create_task(waits.within("engine 1", 5, never()))
            await asyncio.sleep(0.01)
            shown = waits.current()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return shown, waits.current()

    shown, after = asyncio.run(scene())
    assert [what for what, _ in shown] == ["the grader", "engine 1"] and shown[0][1] > shown[1][1] > 0
    assert after == []


def test_two_may_wait_for_the_same():
    waits = Waits()
    with waits.note("version 3"):
        with waits.note("version 3"):
            assert [what for what, _ in waits.current()] == ["version 3"]
        assert [what for what, _ in waits.current()] == ["version 3"]
    assert waits.current() == []


def test_kept_copy_outlives_the_snapshot_and_is_replaced(tmp_path):
    snapshot = tmp_path / "snapshots" / "v1-a1"
    (snapshot / "deep").mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(b"one")
    (snapshot / "deep" / "file").write_text("x")
    target = tmp_path / "published" / "v1"
    assert keep_copy(snapshot, target) == target
    assert (target / "model.safetensors").stat().st_ino == (snapshot / "model.safetensors").stat().st_ino
    shutil.rmtree(snapshot)
    assert (target / "model.safetensors").read_bytes() == b"one" and (target / "deep" / "file").read_text() == "x"

    replay = tmp_path / "snapshots" / "v1-a2"
    replay.mkdir(parents=True)
    (replay / "model.safetensors").write_bytes(b"two")
    keep_copy(replay, target)
    assert [path.name for path in target.iterdir()] == ["model.safetensors"]
    assert (target / "model.safetensors").read_bytes() == b"two"
