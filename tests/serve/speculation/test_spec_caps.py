"""An endpoint takes a request's cap on drafted tokens only where it keeps it."""

import asyncio

import pytest

from serve.access import AccessSettings
from serve.endpoint_app import EndpointApp
from serve.gate import Gate
from serve.levers import engine_levers
from serve.tally import Tally
from tests.serve.access.fake_app import Seen, app_noting, ask
from tests.serve.speculation.test_spec_from_config import NGRAM, cfg

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("speculation", "status"),
    [("method: none", 200), (NGRAM, 400), (f"{NGRAM}, policy: static, policy_options: {{k: 4}}", 200)],
)
def test_a_cap_reaches_only_engines_that_keep_it(speculation, status):
    async def never(*_):
        return None

    asked = engine_levers(cfg(speculation), "cpu")
    gate = Gate()
    gate.open("v0-0")
    app = EndpointApp(
        app_noting(Seen()), gate, Tally(), AccessSettings(),
        readiness=never, states=never, effective=lambda: {"requested": asked},
    )  # fmt: skip
    reply = asyncio.run(ask(app, "POST", "/v1/chat/completions", json=CHAT | {"vllm_xargs": {"max_draft_tokens": 1}}))
    assert reply.status_code == status, reply.text
