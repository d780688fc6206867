"""The documented reward does what it says, taken from the page as it stands there."""

import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from pipeline.config.schema import Reward
from pipeline.rewards import STRATEGIES, Outcome, build, group_advantages, strategy_class, try_out

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
CODE, LINE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]


@pytest.fixture
def brevity(tmp_path, monkeypatch):
    """The block as a module beside the others, and the line in the registry."""
    file = tmp_path / "brevity.py"
    file.write_text(CODE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("pipeline.rewards.brevity", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    ((name, target),) = re.findall(r'^ +"(\w+)": "(\w+:\w+)",$', LINE, re.MULTILINE)
    monkeypatch.setitem(STRATEGIES, name, target)
    return name


def test_a_new_reward_is_a_short_file_and_one_line():
    assert len(CODE.splitlines()) < 30 and len(LINE.splitlines()) == 1


def test_the_documented_reward(brevity):
    strategy = build(Reward(name=brevity, options={"bonus": 0.2}))
    try_out(strategy, group_size=8, max_length=100)
    outcomes = [Outcome(6, True, None, 4), Outcome(8, True, None, 0), Outcome(3, False, None, 3)]
    rewards = strategy.token_rewards(outcomes, 8, 10)
    assert rewards.shape == (3, 8) and (rewards == rewards[:, :1]).all()
    assert rewards[:, 0] == pytest.approx([1 + 0.2 * 0.6, 1.2, 0])
    assert group_advantages(rewards, [6, 8, 3]).shape == (3, 8)
    assert build({"name": brevity}).bonus == 0.1 and not strategy.needs_prefix


def test_the_page_lists_every_strategy_with_its_options():
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE, re.MULTILINE))
    assert set(rows) == set(STRATEGIES)
    for name, row in rows.items():
        options = {field.name for field in fields(strategy_class(name))}
        if name == "l1_max":
            assert "as `l1_exact`, and" in row
            options -= {field.name for field in fields(strategy_class("l1_exact"))}
        assert options <= set(re.findall(r"\w+", row)), name
