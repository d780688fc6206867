"""Files that are replaced in one step."""

import pytest

from pipeline.config import write_whole


def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "state.json"
    write_whole(file, "old")
    write_whole(file, "neu\u00e9\n")
    assert file.read_text(encoding="utf-8") == "neu\u00e9\n" and list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_leaves_the_old_file_alone(tmp_path):
    file = tmp_path / "state.json"
    write_whole(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", "text")
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nowhere" / "state.json", "text")
    assert file.read_text() == "old" and sorted(one.name for one in tmp_path.iterdir()) == ["folder", "state.json"]
