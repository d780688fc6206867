"""Nine situations that an endpoint of the shipped model was really in, nine first levers.

Each profile says which command measured it; `tests/jobs/test_advise_situations.py` measures them anew.
"""

from pathlib import Path

import pytest

from pipeline.config import load_config
from serve.advice import advise
from serve.advice_profile import read_profile
from tests.jobs.situations import SITUATIONS, options

PROFILES = Path(__file__).parent / "profiles"


def first(situation):
    cfg = load_config(None, ["engine.device=cpu", *options(situation)])
    return advise(read_profile(PROFILES / f"{situation.name}.yaml"), cfg)[0]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_the_first_lever_of_a_measured_situation(situation):
    assert first(situation).lever == situation.lever
    assert (PROFILES / f"{situation.name}.yaml").read_text().startswith("# measured by: python -m jobs.advise ")


def test_each_situation_has_its_own():
    assert len({first(situation).lever for situation in SITUATIONS}) == len(SITUATIONS) == 9
    assert {file.stem for file in PROFILES.glob("*.yaml")} == {situation.name for situation in SITUATIONS}
