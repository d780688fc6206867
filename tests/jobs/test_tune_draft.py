"""From a decision log to a draft-length table, by the command's own functions."""

import json

import pytest

from jobs import _tune_draft
from pipeline.config import RunConfig, UserError, load_config
from serve.speculation import DecisionLog, Table, make_policy
from serve.speculation.logs import Decision
from serve.speculation.simulator import simulate
from serve.speculation.state import State
from serve.speculation.workloads import STATIONARY


def write(path, rows):
    log = DecisionLog(path)
    for row in rows:
        log.write(row)
    log.close()
    return path


def row(k, emitted, cost, batch=1, seconds=None, step=0):
    return Decision(step, "ucb", k, (k,) * batch, (emitted,) * batch, cost, State(batch, k_max=2), seconds=seconds)


def test_by_logged_costs_by_hand(tmp_path):
    # k=1 gives 2 tokens for 1.1, k=2 gives 2 for 1.3: 1 is best for one request; for two only k=2 was seen
    rows = [row(1, 2, 1.1)] * 3 + [row(2, 2, 1.3)] * 3 + [row(2, 3, 1.3, batch=2)] * 3
    found = _tune_draft.fitted(RunConfig(), [write(tmp_path / "d.jsonl", rows)], "logged", 3)
    assert found.table.lengths["answer"] == {1: 1, 2: 2} and found.decisions == 9
    text = _tune_draft.text(found, "t.json")
    assert "speculation.table=[[1,1,1],[2,1048576,2]]" in text and "policy_options.table=t.json" in text


def test_by_the_configs_costs(tmp_path):
    log = write(tmp_path / "d.jsonl", [row(2, 3, 1.2)] * 5)
    dear = load_config(None, ["speculation={method: ngram, k_max: 2, policy: goodput, costs: {draft_fixed: 2.0}}"])
    assert _tune_draft.fitted(dear, [log], "config", 3).table.length("answer", 1) == 0
    with pytest.raises(UserError, match="--costs config needs"):
        _tune_draft.fitted(RunConfig(), [log], "config", 3)


def test_by_measured_times(tmp_path):
    """A pass takes 1 s and a draft token 0.1 s; a step verifies one decision and drafts for the next."""
    lengths, batches = [1, 2, 2, 1, 0, 2, 0, 1] * 8, [1, 2, 1, 2, 2] * 13
    rows = []
    for step, (k, after, batch, next_batch) in enumerate(zip(lengths, lengths[1:], batches, batches[1:], strict=False)):
        seconds = 1 + after * (0.1 + 0.05 * next_batch)
        rows.append(row(k, k + 1, 1.0, batch=batch, seconds=seconds, step=step))
    found = _tune_draft.fitted(RunConfig(), [write(tmp_path / "d.jsonl", rows)], "timed", 3)
    costs = found.costs
    assert [costs.fixed, costs.per_token, costs.draft_fixed, costs.draft_per_sequence] == pytest.approx(
        [1.0, 0.0, 0.1, 0.05], abs=1e-6
    )
    assert found.table.length("answer", 1) == 2


def test_logs_of_a_policy_lead_to_its_best_length(tmp_path):
    workload, rows = STATIONARY[0], []
    simulate(make_policy("ucb", workload.k_max), workload, 2000, seed=3, log=rows.append)
    found = _tune_draft.fitted(RunConfig(), [write(tmp_path / "d.jsonl", rows)], "logged", 30)
    assert found.table.length("answer", 1) >= 4  # drafts are accepted with 0.92


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(UserError, match="cannot read the decision log"):
        _tune_draft.fitted(RunConfig(), [tmp_path / "none.jsonl"], "logged", 3)
    with pytest.raises(UserError, match="log longer"):
        _tune_draft.fitted(RunConfig(), [write(tmp_path / "d.jsonl", [row(1, 2, 1.1)])], "logged", 3)


def test_the_written_table_is_one_that_the_policy_reads(tmp_path):
    from argparse import Namespace

    log = write(tmp_path / "d.jsonl", [row(1, 2, 1.1)] * 3)
    file = tmp_path / "deep" / "t.json"
    given = Namespace(log=[str(log)], table=str(file), costs="logged", min_steps=3)
    assert _tune_draft.main(RunConfig(), given) == 0
    assert Table.load(file).length("answer", 9) == 1 and json.loads(file.read_text())["k_max"] == 2
    alias = tmp_path / "alias.jsonl"
    alias.symlink_to(log)
    before = log.read_bytes()
    for table in (log, tmp_path / "deep" / ".." / log.name, alias):
        for step in (_tune_draft.plan, _tune_draft.main):
            with pytest.raises(UserError, match="is the decision log itself"):
                step(RunConfig(), Namespace(**(vars(given) | {"table": str(table)})))
    assert log.read_bytes() == before
    with pytest.raises(UserError, match="give --log"):
        _tune_draft.plan(RunConfig(), Namespace(log=None))
