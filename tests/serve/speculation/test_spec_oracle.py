import json
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.config import UserError
from serve.speculation.oracle import KEY, NoisyOracle


def oracle(tmp_path, rate, texts, k=3, **more):
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(texts))
    config = {KEY: {"replies": str(path), "rate": rate, "vocab": 50, **more}}
    return NoisyOracle(
        SimpleNamespace(additional_config=config, speculative_config=SimpleNamespace(num_speculative_tokens=k))
    )


def test_it_knows_the_text(tmp_path):
    known = oracle(tmp_path, 1.0, [[1, 2, 3, 4, 5, 6], [1, 9, 9]])
    assert known.draft([1, 2]) == [3, 4, 5] and known.draft([1, 2, 3, 4]) == [5, 6]
    assert known.draft([1, 9]) == [9] and known.draft([7]) == [] and known.draft([1, 9, 9]) == []
    assert oracle(tmp_path, 0.0, [[1, 2, 3, 49]]).draft([1]) == [3, 4, 0]


def test_beyond_its_depth_nothing_is_right(tmp_path):
    known = oracle(tmp_path, 1.0, [[1, 2, 3, 4, 5]], k=4, depth=2)
    assert known.draft([1]) == [2, 3, 5, 6] and known.draft([1, 2, 3, 4]) == [5]


def test_its_mistakes_are_as_many_as_said_and_always_the_same(tmp_path):
    text = list(range(40)) * 50
    first, second = oracle(tmp_path, 0.7, [text], k=2000), oracle(tmp_path, 0.7, [text], k=2000)
    draft = first.draft(text[:1])
    assert draft == second.draft(text[:1])
    assert np.mean([a == b for a, b in zip(draft, text[1:], strict=True)]) == pytest.approx(0.7, abs=0.03)


def test_propose_takes_rows_of_the_batch(tmp_path):
    known = oracle(tmp_path, 1.0, [[1, 2, 3, 4, 5, 6]])
    rows = np.array([[1, 2, 3, 0, 0], [1, 2, 0, 0, 0]])
    assert known.propose([[3], []], np.array([3, 2]), rows) == [[4, 5, 6], []]


def test_it_must_be_told(tmp_path):
    with pytest.raises(UserError, match="noisy oracle"):
        NoisyOracle(SimpleNamespace(additional_config={}))
