"""The file of the access log."""

import asyncio
import re
import shutil

from serve.access import log
from serve.access.log import LogFile

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "


def test_lines_are_written_together_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "FLUSH_S", 0.02)
    file = tmp_path / "logs" / "access_a.log"

    async def run():
        lines = LogFile(file)
        for number in range(3):
            lines.add(f"GET /{number}")
        assert file.read_text() == ""
        await asyncio.sleep(0.1)
        first = file.read_text()
        lines.add("GET /3")
        await asyncio.sleep(0.1)
        return first

    first = asyncio.run(run())
    assert re.fullmatch("".join(f"{STAMP}GET /{number}\n" for number in range(3)), first)
    assert re.fullmatch(f"{STAMP}GET /3\n", file.read_text().removeprefix(first))


def test_a_full_file_makes_room_for_another(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "FILE_BYTES", 100)
    monkeypatch.setattr(log, "OLD_FILES", 2)
    file = tmp_path / "access_a.log"

    async def run():
        lines = LogFile(file)
        for number in range(5):
            lines.add(f"{number}" * 101)
            lines.flush()

    asyncio.run(run())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["access_a.log", "access_a.log.1", "access_a.log.2"]
    assert "4" * 101 in file.read_text() and "3" * 101 in (tmp_path / "access_a.log.1").read_text()


def test_a_folder_that_went_and_came_back_gets_lines_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(log, "FILE_BYTES", 100)
    file = tmp_path / "logs" / "access_a.log"

    async def run():
        lines = LogFile(file)
        for number in range(3):
            lines.add(f"{number}" * 101)
            lines.flush()
            if number == 0:
                shutil.rmtree(file.parent)
            elif number == 1:
                assert "FileNotFoundError" in capsys.readouterr().err
                file.parent.mkdir()

    asyncio.run(run())
    assert "2" * 101 in file.read_text()
