"""Keys: made, hashed, found, kept in a file that only its owner reads."""

import json
import stat

import pytest

from pipeline.config import UserError
from serve.access.keys import digest_of, find_key, key_from, made_key, new_secret, read_keys, write_keys
from tests.serve.access.fake_app import ADMIN, INFER, KEYS, OLD


def test_a_key_is_found_until_it_expires():
    assert find_key(KEYS, INFER, 1000.0).name == "ann"
    assert find_key(KEYS, OLD, 899.9).name == "old"
    assert find_key(KEYS, OLD, 900.0) is None
    for wrong in ("", "sk-", INFER[:-1], INFER.upper(), INFER + " ", digest_of(INFER), "\udcff"):
        assert find_key(KEYS, wrong, 0.0) is None


def test_secrets_are_long_and_new():
    first, second = new_secret(), new_secret()
    assert first != second and first.startswith("sk-") and len(first) == 46


def test_digest_is_plain_sha256():
    # printf abc | sha256sum
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_file_comes_back_and_is_private(tmp_path):
    secret, key = made_key("n", "infer", lifetime_s=60, requests_per_minute=5.0, tokens_per_minute=None, priority=-1)
    file = tmp_path / "keys.json"
    write_keys(file, [*KEYS, key])
    assert read_keys(file) == (*KEYS, key)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in file.read_text() and [f.name for f in tmp_path.iterdir()] == ["keys.json"]
    assert key.expires == pytest.approx(key.created + 60)


def test_a_rewritten_file_stays_private(tmp_path):
    file = tmp_path / "keys.json"
    write_keys(file, KEYS)
    file.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        read_keys(file)
    write_keys(file, KEYS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "must hold a list of keys"),
        ('{"keys": {}}', "must hold a list of keys"),
        ('{"keys": [5]}', "key 1 must be a mapping"),
        ('{"keys": [{"name": "a"}]}', "has no 'digest'"),
    ],
)
def test_no_key_file(tmp_path, text, says):
    file = tmp_path / "keys.json"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(UserError, match=says):
        read_keys(file)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(UserError, match=r"jobs\.keys add"):
        read_keys(tmp_path / "none")
    with pytest.raises(UserError, match="cannot read"):
        read_keys(tmp_path)
    with pytest.raises(UserError, match="cannot write"):
        write_keys(tmp_path / "no" / "keys", KEYS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nmae": "x"}, "did you mean 'name'"),
        ({"name": ""}, "1 to 80 printable"),
        ({"name": "a\nb"}, "1 to 80 printable"),
        ({"digest": ADMIN}, "keys themselves are never kept"),
        ({"scope": "root"}, "infer, admin"),
        ({"scope": ["infer"]}, "infer, admin"),
        ({"created": None}, "created must be a number"),
        ({"expires": "soon"}, "expires must be a number"),
        ({"requests_per_minute": 0}, "above 0"),
        ({"tokens_per_minute": True}, "must be a number"),
        ({"priority": 1.5}, "whole number"),
    ],
)
def test_wrong_entries(change, says):
    entry = {"name": "a", "digest": digest_of("x"), "scope": "infer", "created": 1.0}
    assert key_from(entry, "here").name == "a"
    with pytest.raises(UserError, match=says) as caught:
        key_from(entry | change, "here")
    assert ADMIN not in str(caught.value)


@pytest.mark.parametrize(("second", "says"), [({"name": "a"}, "the name 'a'"), ({"name": "b"}, "under two names")])
def test_doubled_keys(tmp_path, second, says):
    entry = {"name": "a", "digest": digest_of("x"), "scope": "infer", "created": 1.0}
    other = entry | second | ({"digest": digest_of("y")} if second["name"] == "a" else {})
    file = tmp_path / "keys.json"
    file.touch(0o600)
    file.write_text(json.dumps({"keys": [entry, other]}))
    with pytest.raises(UserError, match=says):
        read_keys(file)
