import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from serve.policy import Policy, Wanted, fingerprint, policy_from, stamp_event, stamp_json, wanted_from

DIGEST = "0123456789abcdef" * 4


def test_fingerprint_shows_version_and_eight_signs():
    assert fingerprint(7, DIGEST) == "v7-01234567"


def test_policy_round_trip():
    policy = Policy(3, "/tmp/x", DIGEST, "keep")
    assert policy_from(policy.as_config()) == policy
    assert policy.same_weights(Policy(3, "/elsewhere", DIGEST))
    assert not policy.same_weights(Policy(4, "/tmp/x", DIGEST))
    assert not policy.same_weights(None)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"version": 1, "folder": "f"}, "digest"),
        ({"version": "1", "folder": "f", "digest": "d"}, "version"),
        ({"version": 1, "folder": "f", "digest": "d", "mode": "abort"}, "wait, keep"),
        ({"version": 1, "folder": "f", "digest": "d", "path": "x"}, "path"),
    ],
)
def test_wrong_config_is_told(config, text):
    with pytest.raises(UserError, match=text):
        policy_from(config)


OWN = Policy(3, "/3", DIGEST)
OTHER = Policy(2, "/2", "f" * 64, "keep")


def test_wanted_round_trip_and_ranks():
    wanted = Wanted(OWN, OTHER, 2, {"max_waiting": 8})
    assert wanted_from(wanted.as_config()) == wanted
    assert [wanted.for_rank(rank) for rank in range(3)] == [OTHER, OTHER, OWN]
    assert wanted_from(OWN.as_config()) == Wanted(OWN) and Wanted(OWN).for_rank(0) == OWN


def test_access_settings_have_an_identity():
    assert Wanted(OWN).access_digest == Wanted(OWN, access={}).access_digest
    assert Wanted(OWN, access={"a": 1, "b": 2}).access_digest == Wanted(OWN, access={"b": 2, "a": 1}).access_digest
    assert Wanted(OWN, access={"a": 1}).access_digest != Wanted(OWN, access={"a": 2}).access_digest


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"canary": 3}, "canary must be a mapping"),
        ({"canary": OTHER.as_config()}, "canary.replicas"),
        ({"canary": OTHER.as_config() | {"replicas": 0}}, "from 1"),
        ({"canary": OTHER.as_config() | {"replicas": True}}, "whole number"),
        ({"canary": {"version": 1, "replicas": 1}}, "user_config.canary.folder"),
        ({"access": []}, "access must be a mapping"),
        ({"canery": {}}, "canery"),
    ],
)
def test_wrong_wanted_is_told(part, text):
    with pytest.raises(UserError, match=text):
        wanted_from(OWN.as_config() | part)


@pytest.mark.parametrize("tail", [b"", b',"system_fingerprint":"vllm-0.1"', b',"system_fingerprint": null'])
def test_stamp_replaces_the_engines_fingerprint(tail):
    text = b'{"id":"a","choices":[{"delta":{"content":"hi"}}]' + tail + b"}"
    event = stamp_event(b"data: " + text + b"\n\n", "v1-abc")
    assert event.endswith(b"\n\n") and event.count(b"system_fingerprint") == 1
    for whole in (event[len("data: ") :], stamp_json(text, "v1-abc")):
        assert json.loads(whole) == {
            "system_fingerprint": "v1-abc",
            "id": "a",
            "choices": [{"delta": {"content": "hi"}}],
        }


def test_every_event_of_a_chunk_is_stamped():
    chunk = b'event: a\ndata: {"x":1}\n\ndata: {"y":2}\n\ndata: [DONE]\n\n'
    assert stamp_event(chunk, "m").count(b'"system_fingerprint":"m"') == 2
    assert stamp_event(chunk, "m").endswith(b"data: [DONE]\n\n")


EVENTS = st.lists(st.one_of(st.just("[DONE]"), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)))


@given(EVENTS)
def test_pieces_are_stamped_like_the_whole_stream(events):
    """A piece of one event has a way of its own."""
    texts = [event if event == "[DONE]" else json.dumps(event, ensure_ascii=False) for event in events]
    pieces = [f"data: {text}\n\n".encode() for text in texts]
    assert b"".join(stamp_event(piece, "m") for piece in pieces) == stamp_event(b"".join(pieces), "m")


def test_stamp_leaves_what_the_model_wrote():
    text = ',"system_fingerprint":"mine"\ndata: {"'
    body = json.dumps({"id": "a", "text": text}).encode()
    expected = {"system_fingerprint": "v1-abc", "id": "a", "text": text}
    assert json.loads(stamp_json(body, "v1-abc")) == expected
    assert json.loads(stamp_event(b"data: " + body, "v1-abc")[len("data: ") :]) == expected


@pytest.mark.parametrize("body", [b"", b"[1]", b"{}", b"plain"])
def test_what_is_no_object_stays(body):
    assert stamp_json(body, "m") == body and stamp_event(b"data: " + body, "m") == b"data: " + body
