"""The adapter's own bookkeeping over a stand-in for vLLM's scheduler: orders, caps, settlement, preemption."""

import importlib
import json
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.config import UserError
from serve.speculation.settings import KEY

NAMES = ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched", "vllm.v1.core.sched.output",
         "vllm.v1.core.sched.scheduler", "vllm.v1.outputs", "vllm.v1.request")  # fmt: skip


@dataclass
class Drafts:
    req_ids: list
    draft_token_ids: list


class Base:
    """Prefills a request in its first step, then verifies its pending draft in each further one."""

    def __init__(self, config):
        self.dynamic_sd_lookup = None if config.plain else [0] * 9
        self.num_spec_tokens, self.running, self.waiting, self.requests = 4, [], [], {}
        self.left_out, self.received, self.closed = set(), None, False

    def schedule(self):
        self.running, self.waiting = self.running + self.waiting, []
        chosen = [r for r in self.running if r.request_id not in self.left_out]
        spec = {r.request_id: r.draft for r in chosen if r.draft}
        tokens = {r.request_id: (1 if r.num_output_tokens else 5) + len(r.draft) for r in chosen}
        for request in chosen:
            request.draft = []
        k = self.dynamic_sd_lookup[len(tokens)] if tokens else 0
        return SimpleNamespace(num_scheduled_tokens=tokens, scheduled_spec_decode_tokens=spec, k=k)

    def update_draft_token_ids(self, drafts):
        self.received = drafts.draft_token_ids
        for name, draft in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
            self.requests[name].draft = draft

    def update_from_output(self, scheduler_output, model_runner_output):
        for name, index in model_runner_output.req_id_to_index.items():
            self.requests[name].output_token_ids.extend(model_runner_output.sampled_token_ids[index])

    def shutdown(self):
        self.closed = True


class Request:
    def __init__(self, name, cap=None):
        self.request_id, self.draft, self.output_token_ids = name, [], []
        self.sampling_params = SimpleNamespace(extra_args=None if cap is None else {"max_draft_tokens": cap})

    @property
    def num_output_tokens(self):
        return len(self.output_token_ids)


@pytest.fixture
def adapter(monkeypatch):
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.v1.core.sched.output"].SchedulerOutput = SimpleNamespace
    sys.modules["vllm.v1.core.sched.scheduler"].Scheduler = Base
    sys.modules["vllm.v1.outputs"].DraftTokenIds = Drafts
    sys.modules["vllm.v1.outputs"].ModelRunnerOutput = SimpleNamespace
    sys.modules["vllm.v1.request"].Request = Request
    monkeypatch.delitem(sys.modules, "serve.speculation.vllm_scheduler", raising=False)
    yield importlib.import_module("serve.speculation.vllm_scheduler")
    sys.modules.pop("serve.speculation.vllm_scheduler", None)


def config(plain=False, stages=1, **settings):
    keys = {"policy": "static", "options": {"k": 3}, "costs": {"draft_fixed": 0.1}} | settings
    parallel = SimpleNamespace(pipeline_parallel_size=stages)
    return SimpleNamespace(plain=plain, parallel_config=parallel, additional_config={KEY: keys})


def step(scheduler, accepted=2, token=7):
    """One engine step: `accepted` draft tokens of each request at most, then drafts of length 4 for all."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    drafts = [output.scheduled_spec_decode_tokens.get(name, []) for name in names]
    sampled = [[token] * (1 + min(accepted, len(draft))) for draft in drafts]
    result = SimpleNamespace(sampled_token_ids=sampled, req_id_to_index={name: i for i, name in enumerate(names)})
    scheduler.update_from_output(output, result)
    if names:
        scheduler.update_draft_token_ids(Drafts(names, [[1, 2, 3, 4] for _ in names]))
    return output


def add(scheduler, *requests):
    for request in requests:
        scheduler.requests[request.request_id] = request
        scheduler.waiting.append(request)


def test_orders_caps_and_settlement(adapter):
    scheduler = adapter.AdaptiveScheduler(config())
    add(scheduler, Request("a"), Request("b", cap=1), Request("c", cap="x"))
    assert step(scheduler).k == 3
    assert scheduler.received == [[1, 2, 3], [1], [1, 2, 3]]
    assert scheduler.controller.counters["settled"] == 0  # the prefill verified nothing
    step(scheduler)
    counters = scheduler.controller.counters
    assert (counters["settled"], counters["drafted"], counters["accepted"]) == (1, 7, 2 + 1 + 2)
    assert scheduler.controller.policy.counters["cost"] == pytest.approx(3 * 0.1 + 1)
    assert scheduler.faults["bad_caps"] > 0 and scheduler.faults["lost_flights"] == 0


def test_requests_that_were_not_run_or_are_recomputed_are_not_settled(adapter):
    scheduler = adapter.AdaptiveScheduler(config())
    a, b = Request("a"), Request("b")
    add(scheduler, a, b)
    step(scheduler)
    scheduler.left_out = {"b"}
    step(scheduler)
    assert scheduler.controller.counters["drafted"] == 3  # only a's
    scheduler.left_out = set()
    step(scheduler)  # b verifies a draft of an order before the last one
    assert scheduler.controller.counters["drafted"] == 6


def test_the_order_of_a_step_is_that_of_the_step_before(adapter):
    rows = []
    scheduler = adapter.AdaptiveScheduler(config(policy="ucb", options={}))
    scheduler.controller.log = SimpleNamespace(write=rows.append)
    add(scheduler, Request("a"))
    ordered = [step(scheduler).k for _ in range(8)]
    assert [row.k for row in rows] == ordered[:-1]
    assert all(row.drafted == row.asked == (row.k,) for row in rows)


def test_phase_follows_the_end_of_thinking(adapter):
    scheduler = adapter.AdaptiveScheduler(config(end_of_thinking=9))
    request = Request("a")
    add(scheduler, request)
    step(scheduler)
    assert scheduler._phase(request) == "reasoning"
    step(scheduler, token=9)
    step(scheduler)
    assert scheduler._phase(request) == "answer"


def test_lost_outputs_are_counted_and_empty_steps_pass(adapter):
    scheduler = adapter.AdaptiveScheduler(config())
    step(scheduler)
    add(scheduler, Request("a"))
    scheduler.schedule()  # its output never comes back
    step(scheduler)
    assert scheduler.faults["lost_flights"] == 1


def test_memory_and_counters_are_saved_at_the_end(adapter, tmp_path):
    scheduler = adapter.AdaptiveScheduler(config(memory=str(tmp_path / "m.json"), log=str(tmp_path / "d.jsonl")))
    add(scheduler, Request("a"))
    step(scheduler)
    scheduler.shutdown()
    assert scheduler.closed and (tmp_path / "m.json").exists()
    told = json.loads((tmp_path / "d.jsonl.figures.json").read_text())
    assert told["speculation_policy_orders"] == {"0": 0, "1": 0, "2": 0, "3": 1, "4": 0}
    assert told["speculation_policy_faults"]["save_errors"] == 0


def test_memory_is_saved_now_and_then_and_a_full_disk_is_counted(adapter, tmp_path, monkeypatch):
    monkeypatch.setattr(adapter, "SAVE_EVERY", 2)
    scheduler = adapter.AdaptiveScheduler(config(memory=str(tmp_path / "m.json")))
    add(scheduler, Request("a"))
    for _ in range(3):
        step(scheduler)
    assert (tmp_path / "m.json").exists() and scheduler.faults["save_errors"] == 0
    (tmp_path / "m.json").unlink()
    (tmp_path / "m.json").mkdir()
    (tmp_path / "m.json" / "x").touch()
    step(scheduler), step(scheduler)
    assert scheduler.faults["save_errors"] == 1


@pytest.mark.parametrize(("keys", "text"), [({"plain": True}, "data_parallel_size"), ({"stages": 2}, "pipeline")])
def test_engines_it_cannot_serve_are_refused(adapter, keys, text):
    with pytest.raises(UserError, match=text):
        adapter.AdaptiveScheduler(config(**keys))
