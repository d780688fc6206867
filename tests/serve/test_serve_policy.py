import json

import pytest

from pipeline.config import UserError
from serve.policy import Policy, fingerprint, policy_from, read_mark, stamp_chunk

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


@pytest.mark.parametrize("tail", ["", ',"system_fingerprint":"vllm-0.1"', ',"system_fingerprint":null'])
def test_stamp_replaces_the_engines_fingerprint(tail):
    chunk = 'data: {"id":"a","choices":[{"delta":{"content":"hi"}}]' + tail + "}\n\n"
    stamped = stamp_chunk(chunk, "v1-abc")
    assert stamped.endswith("\n\n") and stamped.count("system_fingerprint") == 1
    assert json.loads(stamped[len("data: ") :])["system_fingerprint"] == "v1-abc"
    assert read_mark(stamped) == "v1-abc"


def test_stamp_leaves_what_the_model_wrote():
    text = ',"system_fingerprint":"mine"'
    chunk = "data: " + json.dumps({"id": "a", "text": text}) + "\n\n"
    assert json.loads(stamp_chunk(chunk, "v1-abc")[len("data: ") :]) == {
        "system_fingerprint": "v1-abc",
        "id": "a",
        "text": text,
    }


def test_stamp_leaves_done():
    assert stamp_chunk("data: [DONE]\n\n", "v1-abc") == "data: [DONE]\n\n"
    assert read_mark("data: [DONE]\n\n") is None
    assert read_mark([]) is None
