"""The file of a block: what was written comes back, and nothing else passes for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.kv_tier.block_file import HEADER_BYTES, CorruptBlock, file_size, header, read_into
from serve.kv_tier.naming import block_file, engine_digest, root_name

WEIGHTS = "0123456789abcdef" * 4


def written(path, payload, root="e/w", name="k"):
    path.write_bytes(header(root, name, payload) + payload)
    return path


def read(path, size, root="e/w", name="k"):
    target = bytearray(size)
    read_into(path, root, name, memoryview(target))
    return bytes(target)


@given(payload=st.binary(max_size=300))
def test_what_was_written_comes_back(tmp_path_factory, payload):
    path = written(tmp_path_factory.mktemp("b") / "block", payload)
    assert path.stat().st_size == file_size(len(payload)) == HEADER_BYTES + len(payload)
    assert read(path, len(payload)) == payload


@given(data=st.data(), payload=st.binary(min_size=1, max_size=100))
def test_no_changed_or_cut_file_passes(tmp_path_factory, data, payload):
    path = written(tmp_path_factory.mktemp("b") / "block", payload)
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[place] ^= data.draw(st.integers(1, 255))
    else:
        del whole[place:]
    path.write_bytes(whole)
    with pytest.raises(CorruptBlock):
        read(path, len(payload))


def test_a_file_of_another_root_name_or_length_does_not_pass(tmp_path):
    path = written(tmp_path / "block", b"x" * 50)
    for asked in ({"root": "e/v"}, {"name": "j"}):
        with pytest.raises(CorruptBlock, match="digest"):
            read(path, 50, **asked)
    with pytest.raises(CorruptBlock, match="do not hold a block of 40"):
        read(path, 40)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(CorruptBlock):
        read(path, 50)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", 50)


def test_a_root_is_named_by_engine_and_weights():
    assert root_name("a" * 32, WEIGHTS) == f"{'a' * 32}/{WEIGHTS[:32]}"
    for odd in ("", "../" * 20, WEIGHTS[:31], WEIGHTS.upper(), "/" + WEIGHTS):
        with pytest.raises(ValueError, match="no hex digest"):
            root_name("a" * 32, odd)


@given(one=st.dictionaries(st.text(), st.integers()), other=st.dictionaries(st.text(), st.integers()))
def test_engine_digests_agree_exactly_where_the_parts_do(one, other):
    assert engine_digest(one) == engine_digest(dict(reversed(one.items())))
    assert (engine_digest(one) == engine_digest(other)) == (one == other)


def test_a_block_lies_by_its_key(tmp_path):
    assert block_file(tmp_path, b"\xab\xcd") == tmp_path / "ab" / "abcd.kv"
