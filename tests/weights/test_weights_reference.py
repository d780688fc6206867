import math

import pytest

from pipeline.weights import Reference, SnapshotError, make_reference, read_reference
from pipeline.weights.reference import REFERENCE_NAME, TOKENS, reference_ids


def test_distance_is_the_mean_absolute_difference():
    reference = Reference([1, 2, 3], [-1.0, -2.0])
    assert reference.distance([-1.5, -2.0]) == pytest.approx(0.25)
    assert reference.distance([-1.0, -2.0]) == 0
    assert reference.distance([-1.0]) == math.inf
    assert reference.distance([-1.0, math.nan]) == math.inf
    assert reference.distance([-1.0, -math.inf]) == math.inf


@pytest.mark.parametrize("vocabulary", [2, 97, 151_936])
def test_ids_are_fixed_and_within_the_vocabulary(vocabulary):
    ids = reference_ids(vocabulary)
    assert len(ids) == TOKENS and all(0 <= i < vocabulary for i in ids) and ids == reference_ids(vocabulary)


def test_round_trip(tmp_path):
    made = make_reference(97, lambda ids: [-0.5] * (len(ids) - 1))
    (tmp_path / REFERENCE_NAME).write_text(made.to_json())
    assert read_reference(tmp_path) == made and made.distance([-0.5] * (TOKENS - 1)) == 0


def test_none_where_there_is_none(tmp_path):
    assert read_reference(tmp_path) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"token_ids": [1]}', '{"token_ids": [1, 2, 3], "logprobs": [0.1]}'])
def test_a_damaged_one_is_told(tmp_path, text):
    (tmp_path / REFERENCE_NAME).write_text(text)
    with pytest.raises(SnapshotError, match=REFERENCE_NAME):
        read_reference(tmp_path)
