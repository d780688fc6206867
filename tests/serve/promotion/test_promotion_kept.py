import os

import pytest

from pipeline.config import UserError
from pipeline.evaluation.tally import Measurement, Tally, tally
from pipeline.traces import Stop
from serve.promotion.kept import Kept, copy_name, prune
from tests.loop.builders import scored

MEASURED = Measurement(3, "d" * 64, "a" * 64, {"p": Tally(2, 1, 0, 1, 9, 3, 6)}, 1e-5, 0.2)


def test_a_measurement_comes_back_for_the_same_weights_and_question_alone(tmp_path):
    kept = Kept(tmp_path / "gate")
    assert kept.get("d" * 64, "a" * 64) is None
    kept.put(MEASURED)
    kept.put(MEASURED)
    assert kept.get("d" * 64, "a" * 64) == MEASURED
    assert kept.get("d" * 64, "b" * 64) is None
    assert kept.get("d" * 12 + "e" * 52, "a" * 64) is None  # the same beginning is not the same weights
    assert len(list((tmp_path / "gate").iterdir())) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"problems": {"p": {"right": 1}}}', "null"])
def test_a_damaged_file_is_named(tmp_path, text):
    kept = Kept(tmp_path)
    kept.put(MEASURED)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    with pytest.raises(UserError, match="no measurement of the gate.*remove it"):
        kept.get("d" * 64, "a" * 64)


def test_tallies_count_by_problem():
    found = tally(
        [
            scored(True, 6, prefix=2, think=4, problem="p"),
            scored(True, 5, prefix=None, problem="p"),
            scored(None, 4, problem="p", stop=Stop.LENGTH),
            scored(False, 3, problem="q"),
        ]
    )
    assert found == {"p": Tally(3, 2, 1, 1, 15, 2, 4), "q": Tally(1, 0, 0, 0, 3)}


def test_old_copies_go_and_those_in_use_stay(tmp_path):
    names = [copy_name(n, f"{n:064x}") for n in range(5)] + ["v7", "base-0123", "v-else"]
    for age, name in enumerate(names):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (age, age))
    gone = prune(tmp_path, [tmp_path / names[0], str(tmp_path / names[2])], 1)
    assert {path.name for path in gone} == {names[1], names[3], names[4]}
    assert {path.name for path in tmp_path.iterdir()} == {names[0], names[2], "v7", "base-0123", "v-else"}
    assert prune(tmp_path, [], 9) == [] and prune(tmp_path / "none", [], 0) == []
