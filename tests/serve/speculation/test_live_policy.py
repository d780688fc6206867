"""Adaptive draft lengths in a real engine, with a drafter of known quality: what is written, ordered, paid and kept."""

import json
from pathlib import Path

import pytest

from serve.speculation.costs import CostModel
from serve.speculation.exactness import compare_samples, first_difference
from serve.speculation.fit import timings
from serve.speculation.logs import read_decisions
from serve.speculation.settings import Settings, engine_options
from tests.serve.speculation.live_engine import PROMPTS, by_request, expected, greedy, oracle_options, run

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]
K_MAX = 4
COSTS = {"draft_fixed": 0.1}
SAMPLES = 400


def oracle(folder, rate=1.0, depth=K_MAX, **settings):
    """Engine options with an oracle under the goodput policy (or another), and the path of the decision log."""
    log = folder / "decisions.jsonl"
    settings = Settings(costs=COSTS, log=str(log), **settings)
    return oracle_options(folder, settings, K_MAX, rate=rate, depth=depth), log


# Right for `depth` tokens a draft: k = depth emits 1 + depth for 1 + 0.1 depth, any other k fewer a unit.
@pytest.mark.parametrize(("rate", "depth", "best"), [(1.0, K_MAX, K_MAX), (1.0, 2, 2), (0.02, K_MAX, 0)])
def test_goodput_ends_on_the_best_length_and_the_words_stay_the_same(tmp_path, rate, depth, best):
    options, log = oracle(tmp_path, rate, depth, options={"probe_every": 20}, memory=str(tmp_path / "memory.json"))
    got = run(tmp_path / "engine", [greedy()], **options)
    assert first_difference(expected(), by_request(got["replies"][0])) is None
    rows = list(read_decisions(log))
    late = rows[len(rows) // 2 :]
    assert sum(row.k == best for row in late) >= 0.8 * len(late)
    check_books(rows, got["replies"][0])
    saved = json.loads(Path(tmp_path / "memory.json").read_text())
    assert saved["counters"]["observed"] == len(rows)


def check_books(rows, replies):
    """Every token is accounted for, and every step pays for its drafting and its verifying."""
    written = sum(len(samples[0]) - 1 for samples in replies)  # each reply's first token comes from its prefill
    beyond = K_MAX * len(PROMPTS)  # the last step of a reply may emit more than its length leaves room for
    assert written <= sum(sum(row.emitted) for row in rows) <= written + beyond
    assert all(sum(row.drafted) <= sum(row.asked) for row in rows)
    costs = CostModel(**COSTS)
    for row in rows:
        tokens = len(row.asked) + sum(row.drafted)
        assert row.cost == pytest.approx(costs.draft(max(row.asked), len(row.asked)) + costs.verify(tokens))
    assert timings(rows)


def test_caps_of_requests_are_kept(tmp_path):
    options, log = oracle(tmp_path, policy="static", options={"k": 3})
    params = [dict(one, extra_args={"max_draft_tokens": cap} if cap is not None else None)
              for one, cap in zip(greedy(), (0, 1, None, 9), strict=True)]  # fmt: skip
    got = run(tmp_path / "engine", [params], per_request_spec_decode_metrics="detailed", **options)
    assert first_difference(expected(), by_request(got["replies"][0])) is None
    full = [row for row in read_decisions(log) if len(row.asked) == 4]
    assert full and all(sorted(row.asked) == [0, 1, 3, 3] for row in full)
    assert all(emitted == 1 for row in full for asked, emitted in zip(row.asked, row.emitted, strict=True) if not asked)
    means = [told["mean_acceptance_length"] if told else 1.0 for told in got["told"][0]]
    assert means[0] <= 1 < means[1] <= 2 < means[2] and means[3] > 2


@pytest.mark.parametrize("policy", [None, "thompson"])
def test_ngram_writes_the_same_at_a_static_and_at_a_changing_length(tmp_path, policy):
    speculative = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    options = {"speculative_config": speculative}
    if policy:
        options = engine_options(Settings(policy, costs=COSTS, log=str(tmp_path / "d.jsonl")), speculative)
    got = run(tmp_path / "engine", [greedy()], per_request_spec_decode_metrics="summary", **options)
    assert first_difference(expected(), by_request(got["replies"][0])) is None
    assert any(told and told["mean_acceptance_length"] > 1 for told in got["told"][0])
    if policy:
        assert len({row.k for row in read_decisions(tmp_path / "d.jsonl")}) > 1


def test_sampled_words_follow_the_same_law(tmp_path):
    def sampled(seed):
        return [{"temperature": 1.0, "max_tokens": 3, "n": SAMPLES, "seed": seed} for _ in PROMPTS]

    plain = run(tmp_path / "plain", [sampled(5)])["replies"][0]
    options, log = oracle(tmp_path / "oracle", 0.7, policy="static", options={"k": 3})
    drafted = run(tmp_path / "oracle", [sampled(77)], **options)["replies"][0]
    assert sum(sum(row.drafted) for row in read_decisions(log)) > 0
    verdicts = []
    for before, after in zip(plain, drafted, strict=True):
        for place in range(3):  # each token by itself, and all three
            words = [[sample[place] if place < len(sample) else None for sample in side] for side in (before, after)]
            verdicts.append(compare_samples(*words).verdict())
        verdicts.append(compare_samples([tuple(s) for s in before], [tuple(s) for s in after]).verdict())
    assert "different" not in verdicts and verdicts.count("same") >= len(verdicts) / 2
