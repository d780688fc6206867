"""The `speculation` section: the engine arguments it becomes, and what is refused before anything starts."""

import json

import pytest

from pipeline.config import RunConfig, UserError, load_config, resolve_paths
from pipeline.engine.vllm_source import class_fields
from serve.lever_checks import refusals
from serve.levers import engine_levers, lever_sections
from serve.speculation import Table, make_policy
from serve.speculation.from_config import speculation_line
from serve.speculation.settings import KEY, SCHEDULER, Settings
from serve.speculation.ssd_settings import KEY as SSD_KEY
from serve.speculation.ssd_settings import PROPOSER, SsdSettings

TINY = "infra/presets/tiny.yaml"
NGRAM = "method: ngram, k_max: 4"


def cfg(text, *more):
    return load_config(TINY, [f"speculation={{{text}}}", *more])


def only(sentences):
    assert len(sentences) == 1, sentences
    return sentences[0]


def test_a_policy_becomes_scheduler_table_and_settings():
    text = (
        f"{NGRAM}, policy: goodput, policy_options: {{dwell: 8, margin: 0.05}}, costs: {{draft_fixed: 0.2}}, "
        "end_of_thinking: 7"
    )
    found = engine_levers(cfg(text), "cpu")
    assert found["scheduler_cls"] == SCHEDULER and found["disable_log_stats"] is False
    assert found["speculative_config"]["num_speculative_tokens_per_batch_size"][0] == [1, 1, 4]
    settings = Settings.from_config(found["additional_config"][KEY])
    assert (settings.policy, settings.options) == ("goodput", {"dwell": 8, "margin": 0.05})
    assert settings.costs == {"draft_fixed": 0.2} and settings.end_of_thinking == 7
    assert json.loads(json.dumps(found)) == found and set(found) <= class_fields("EngineArgs")
    assert refusals(cfg(text), "cpu") == []


def test_without_a_policy_vllms_own_scheduler_runs():
    found = engine_levers(cfg(NGRAM), "cpu")
    assert "scheduler_cls" not in found and found["per_request_spec_decode_metrics"] == "summary"
    assert not {"speculative_config", "per_request_spec_decode_metrics"} & set(engine_levers(RunConfig(), "cpu"))


def test_a_plan_says_who_drafts_and_who_chooses_the_length():
    assert speculation_line(cfg("method: none").speculation) == "speculation: none"
    assert speculation_line(cfg(NGRAM).speculation) == "speculation: ngram, up to 4 tokens, fixed"
    assert speculation_line(cfg(f"{NGRAM}, table: [[1, 8, 2]]").speculation).endswith("by the table")
    assert speculation_line(cfg(f"{NGRAM}, policy: ucb").speculation).endswith("by the policy ucb")
    assert speculation_line(cfg("method: suffix").speculation) == "speculation: suffix, its own lengths"


def test_ssd_is_a_drafter_of_our_own():
    found = engine_levers(cfg("method: ssd, k_max: 4, branches: 8, backup: none, policy: thompson"), "cpu")
    assert found["speculative_config"]["method"] == "custom_class" and found["speculative_config"]["model"] == PROPOSER
    assert SsdSettings.from_config(found["additional_config"][SSD_KEY]) == SsdSettings(8, "none")
    assert KEY in found["additional_config"]
    assert refusals(cfg("method: ssd, k_max: 4"), "cpu") == []


@pytest.mark.parametrize("policy", ["ucb", "thompson", "goodput", "learned"])
def test_every_policy_can_be_asked_for(policy):
    assert refusals(cfg(f"{NGRAM}, policy: {policy}, policy_options: {{seed: 3}}"), "cpu") == []


def test_static_and_table_policies_take_what_they_need(tmp_path):
    assert refusals(cfg(f"{NGRAM}, policy: static, policy_options: {{k: 2}}"), "cpu") == []
    file = tmp_path / "t.json"
    Table(4, {"reasoning": {1: 4}, "answer": {1: 2}}).save(file)
    assert refusals(cfg(f"{NGRAM}, policy: table, policy_options: {{table: {file}}}"), "cpu") == []
    short = cfg(f"method: ngram, k_max: 3, policy: table, policy_options: {{table: {file}}}")
    assert "made for k_max=4, the engine has 3" in only(refusals(short, "cpu"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("policy: goodput", "policy does nothing with method 'none'"),
        ("method: suffix, policy: goodput", "suffix decoding sets its own length"),
        (f"{NGRAM}, policy: goodput, table: [[1, 8, 2]]", "table does nothing beside policy"),
        (f"{NGRAM}, policy_options: {{dwell: 4}}", "policy_options.dwell does nothing without policy"),
        (f"{NGRAM}, log: d.jsonl", "log does nothing without policy"),
        (f"{NGRAM}, policy: static, policy_options: {{k: 2}}, memory: m.json", "which learns nothing"),
        (f"{NGRAM}, policy: goodput, log: a.json, memory: ./b/../a.json", "log and memory are the same file, a.json"),
        (f"{NGRAM}, policy: table, costs: {{fixed: 2}}", "costs.fixed does nothing with policy 'table' and no log"),
        (f"{NGRAM}, policy: greedy", "policy"),
        (f"{NGRAM}, policy: goodput, policy_options: {{dwel: 4}}", "dwel"),
        (f"{NGRAM}, branches: 4", "branches does nothing with method 'ngram'"),
        ("method: ssd, k_max: 3, model: x", "model does nothing with method 'ssd'"),
        ("method: ssd", "needs k_max"),
        ("method: custom_class, k_max: 3", "package.module.Class"),
        ("method: custom_class, k_max: 3, model: a-b.C", "package.module.Class"),
    ],
)
def test_contradictions_are_told_as_the_config_is_read(text, part):
    with pytest.raises(UserError) as caught:
        cfg(text)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{NGRAM}, policy: goodput, policy_options: {{k: 2}}", "policy goodput has no option 'k'"),
        (f"{NGRAM}, policy: static", "needs the option 'k'"),
        (f"{NGRAM}, policy: static, policy_options: {{k: 0}}", "set speculation.method to none"),
        (f"{NGRAM}, policy: static, policy_options: {{k: 5}}", "must lie in 0 ... 4"),
        (f"{NGRAM}, policy: table, policy_options: {{table: none.json}}", "cannot read the draft-length table"),
        ("method: custom_class, k_max: 3, model: serve.no_such.Drafter", "no module serve.no_such"),
        ("method: custom_class, k_max: 3, model: no_such.inside.Drafter", "no module no_such.inside"),
    ],
)
def test_refused_before_anything_starts(text, part):
    assert part in only(refusals(cfg(text), "cpu"))


def test_files_of_one_engine_are_not_shared_by_replicas():
    text = f"{NGRAM}, policy: goodput, log: d.jsonl, memory: m.json"
    assert refusals(cfg(text), "cpu") == []
    found = refusals(cfg(text, "serve.replicas=2"), "cpu")
    assert len(found) == 2 and all("2 replicas would write over each other" in sentence for sentence in found)


def test_a_memory_that_is_none_or_anothers_is_refused(tmp_path):
    memory = tmp_path / "m.json"
    text = f"{NGRAM}, policy: goodput, memory: {memory}"
    memory.write_text("[1")
    assert "is no memory of a draft-length policy" in only(refusals(cfg(text), "cpu"))
    memory.write_text(json.dumps(make_policy("ucb", 4).state_dict()))
    assert "policy='ucb'; this one has 'goodput'" in only(refusals(cfg(text), "cpu"))


def test_paths_are_absolute_for_replicas_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"{NGRAM}, policy: goodput, log: a/d.jsonl, memory: m.json"
    spec = resolve_paths(cfg(text)).speculation
    assert (spec.log, spec.memory) == (str(tmp_path / "a/d.jsonl"), str(tmp_path / "m.json"))
    own = resolve_paths(cfg("method: custom_class, k_max: 2, model: serve.speculation.oracle.NoisyOracle"))
    assert own.speculation.model == "serve.speculation.oracle.NoisyOracle"
    again = RunConfig(**json.loads(json.dumps(lever_sections(cfg(text)))))
    assert engine_levers(again, "cpu") == engine_levers(cfg(text), "cpu")
