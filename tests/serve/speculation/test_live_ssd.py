"""Drafts prepared while a real engine verifies: exact, capped, ordered by a policy, and found when they are needed."""

import pytest

from serve.speculation.exactness import first_difference
from serve.speculation.logs import read_decisions
from serve.speculation.settings import Settings, engine_options
from serve.speculation.ssd_settings import KEY, PROPOSER, SsdSettings
from tests.serve.speculation.live_engine import by_request, expected, greedy, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_replies_are_exact_under_a_policy_and_caps_and_prepared_drafts_are_used(tmp_path):
    log = tmp_path / "d.jsonl"
    speculative = {"method": "custom_class", "model": PROPOSER, "num_speculative_tokens": 4}
    options = engine_options(Settings("thompson", costs={"draft_fixed": 0.02}, log=str(log)), speculative)
    options["additional_config"][KEY] = SsdSettings().as_config()
    capped = greedy()
    capped[1]["extra_args"] = {"max_draft_tokens": 1}
    got = run(tmp_path, [greedy(), capped], per_request_spec_decode_metrics="summary", **options)
    for replies in got["replies"]:
        assert first_difference(expected(), by_request(replies)) is None
    figures = {
        name.removeprefix("speculation_ssd_total/"): value
        for name, value in got["figures"].items()
        if name.startswith("speculation_ssd_total/")
    }
    assert figures["hits"] > 0 and figures["branches"] > 0 and figures["errors"] == 0
    orders = sum(value for name, value in got["figures"].items() if name.startswith("speculation_policy_orders_total"))
    rows = list(read_decisions(log))
    assert orders >= len(rows) > 0 and any(sum(row.emitted) > len(row.emitted) for row in rows)
    print("prepared drafts:", figures)
