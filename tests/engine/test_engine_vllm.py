"""A real engine against transformers: log-probs, seeds, swaps. One engine with tied embeddings, then one without."""

import asyncio
import shutil
import time

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Engine
from pipeline.engine import EngineBroken, EngineOptions, EngineTimeout, GenerateRequest, RolloutEngine, SwapRefused
from pipeline.traces import Stop

pytestmark = pytest.mark.slow
PROMPT = (5, 9, 33, 70, 12)
PARITY = 1e-3  # mean absolute difference of log-probs, fp32


class Live:
    """The engine under test, its reference models, and which seed's weights it should have."""

    def __init__(self, engine, effective, models, tied, run):
        self.engine, self.effective, self.models, self.tied, self.run = engine, effective, models, tied, run
        self.weights = 0

    def ask(self, *requests, **keys):
        return self.run(self.engine.generate(list(requests), **keys))

    def swap(self, version, mode="keep", **keys):
        """Swap and remember whose weights are in use."""
        folder, digest = self.models.snapshot(self.tied, version)
        receipt = self.run(self.engine.swap(folder, version, digest, mode, **keys))
        self.weights = version
        return receipt

    def next_version(self):
        return self.engine.version + 1

    def gap(self, trace, start=0, end=None, weights=None, temperature=1.0):
        """Mean absolute difference to transformers over tokens [start, end) of a trace."""
        weights = self.weights if weights is None else weights
        want = self.models.logprobs(self.tied, weights, trace.prompt_ids, trace.token_ids, temperature)
        pairs = list(zip(want, trace.logprobs, strict=True))[start:end]
        return sum(abs(a - b) for a, b in pairs) / len(pairs)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def live(request, models, run):
    engine = RolloutEngine(f"test-{request.param}")
    options = EngineOptions.from_config(Engine(max_model_len=256, max_num_seqs=64, kv_cache_bytes=64 << 20))
    effective = run(engine.start(models.base(request.param), options))
    yield Live(engine, effective, models, request.param, run)
    run(engine.shutdown())


def request(issue="i", **keys):
    base = {"issue_id": issue, "problem_id": "p", "prompt_ids": PROMPT, "n": 4, "seed": 100, "max_new_tokens": 24}
    return GenerateRequest(**{**base, **keys})


def traces(groups):
    return [trace for group in groups for trace in group.traces]


def test_options_asked_for_are_in_effect(live):
    assert live.effective.differences() == {}
    assert live.effective.effective["executor"] == "uni"
    assert live.effective.capacity_tokens > 256


def test_parity_with_transformers_before_and_after_swaps(live):
    for _ in range(3):
        got = traces(live.ask(request()))
        assert max(live.gap(trace) for trace in got) <= PARITY
        assert {span.version for trace in got for span in trace.versions} == {live.engine.version}
        scored = live.run(live.engine.score(PROMPT, got[0].token_ids))
        want = live.models.logprobs(live.tied, live.weights, PROMPT, got[0].token_ids)
        assert sum(abs(a - b) for a, b in zip(scored, want, strict=True)) / len(want) <= PARITY
        receipt = live.swap(live.next_version())
        assert receipt.changed and receipt.tensors == len(live.models.net(live.tied, 0).state_dict()) - live.tied


def test_parity_fails_where_the_packed_head_is_left_old(live, monkeypatch):
    if not live.tied:
        pytest.skip("an untied head has its own tensor in every snapshot")
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.engine.worker.repack_tied_head", lambda model: 0)
        live.swap(live.next_version())
        assert live.gap(traces(live.ask(request()))[0]) > 100 * PARITY
    live.swap(live.next_version())
    assert live.gap(traces(live.ask(request()))[0]) <= PARITY


def test_logprobs_are_of_the_distribution_sampled_from(live):
    hot, cold = traces(live.ask(request(n=1, temperature=1.7), request("j", n=1, temperature=0.6)))
    assert live.gap(hot, temperature=1.7) <= PARITY
    assert live.gap(cold, temperature=0.6) <= PARITY
    assert live.gap(cold, temperature=1.0) > 10 * PARITY
    cut = traces(live.ask(request(n=1, top_p=0.5)))[0]
    full = live.models.logprobs(live.tied, live.weights, PROMPT, cut.token_ids)
    assert all(a >= b - PARITY for a, b in zip(cut.logprobs, full, strict=True))
    assert sum(cut.logprobs) > sum(full) + 0.1


def test_samples_depend_on_their_seed_and_not_on_the_batch(live):
    alone = live.ask(request())[0]
    others = [request(f"o{i}", prompt_ids=(40 + i, 41), seed=1000 * i, max_new_tokens=40) for i in range(6)]
    crowded = live.ask(*others[:3], request(), *others[3:])[3]
    assert [t.token_ids for t in alone.traces] == [t.token_ids for t in crowded.traces]
    assert len({t.token_ids for t in alone.traces}) == 4
    third = traces(live.ask(request(n=1, seed=102)))[0]
    assert third.token_ids == alone.traces[2].token_ids


def test_groups_keep_the_order_and_names_of_requests(live):
    groups = live.ask(request("a", n=1, max_new_tokens=60), request("b", n=3, problem_id="q", max_new_tokens=2))
    assert [(g.issue_id, g.problem_id, len(g.traces)) for g in groups] == [("a", "p", 1), ("b", "q", 3)]
    assert [t.sample for t in groups[1].traces] == [0, 1, 2]


def test_stops_include_the_end_token_and_text_is_the_tokens_text(live):
    got = traces(live.ask(request(n=32, max_new_tokens=120)))
    ended = [t for t in got if t.stop is Stop.EOS]
    cut = [t for t in got if t.stop is Stop.LENGTH]
    assert ended and cut
    assert all(t.token_ids[-1] == 1 and 1 not in t.token_ids[:-1] for t in ended)
    assert all(len(t.token_ids) == 120 and 1 not in t.token_ids for t in cut)
    assert all(t.text == "".join(f"t{i}" for i in t.token_ids) for t in got)


async def _under_way(engine, requests, steps=30):
    """Start generating and return the task once the engine has made `steps` steps."""
    begun = engine._loop.steps
    task = asyncio.ensure_future(engine.generate(requests))
    limit = time.monotonic() + 120
    while engine._loop.steps < begun + steps:
        assert time.monotonic() < limit and not task.done()
        await asyncio.sleep(0.002)
    return task


def test_keep_swaps_mark_which_version_made_which_tokens(live):
    # More running tokens than one step may prefill: recomputing them must not cut a seeded request into chunks.
    old, new = live.engine.version, live.next_version()
    folder, digest = live.models.snapshot(live.tied, new)
    requests = [request(f"k{i}", n=8, seed=50 * i, prompt_ids=(7, 8 + i) * 40, max_new_tokens=150) for i in range(8)]

    async def swap_midway():
        task = await _under_way(live.engine, requests)
        receipt = await live.engine.swap(folder, new, digest, "keep")
        return receipt, await task

    receipt, groups = live.run(swap_midway())
    was, live.weights = live.weights, new
    mixed = [t for t in traces(groups) if len(t.versions) == 2]
    assert receipt.version == new and len(mixed) > 20
    for trace in mixed[:6]:
        before, after = trace.versions
        assert (before.version, after.version) == (old, new)
        assert (before.start, before.end, after.end) == (0, after.start, len(trace.token_ids))
        assert live.gap(trace, 0, before.end, weights=was) <= PARITY
        assert live.gap(trace, after.start, weights=new) <= PARITY


def test_wait_swaps_leave_one_version_in_each_trace(live):
    old, new = live.engine.version, live.next_version()
    folder, digest = live.models.snapshot(live.tied, new)

    async def swap_midway():
        task = await _under_way(live.engine, [request(f"w{i}", seed=50 * i, max_new_tokens=80) for i in range(6)], 10)
        swap = asyncio.ensure_future(live.engine.swap(folder, new, digest, "wait"))
        while not live.engine._loop._barrier:
            await asyncio.sleep(0.002)
        late = await live.engine.generate([request("late")])
        await swap
        return await task, late

    early, late = live.run(swap_midway())
    live.weights = new
    assert {s.version for t in traces(early) for s in t.versions} == {old}
    assert {s.version for t in traces(late) for s in t.versions} == {new}
    assert max(live.gap(t) for t in traces(late)) <= PARITY


def test_a_cached_prefix_is_not_reused_after_a_swap(live):
    prompt = (7, 8) * 40  # several cache blocks
    live.ask(request(prompt_ids=prompt))
    live.swap(live.next_version())
    assert max(live.gap(t) for t in traces(live.ask(request(prompt_ids=prompt)))) <= PARITY


def test_refused_swaps_leave_the_old_weights_serving(live, tmp_path):
    version, print_ids = live.engine.version, (3, 4, 5, 6)
    before = live.run(live.engine.fingerprint(print_ids))
    folder, digest = live.models.snapshot(live.tied, version + 1)
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    raw = bytearray((damaged / "model.safetensors").read_bytes())
    raw[-5] ^= 1
    (damaged / "model.safetensors").write_bytes(raw)
    attempts = [
        ((folder, version + 1, "0" * 64), "expected 000000"),
        ((folder, version + 2, digest), f"holds version {version + 1}"),
        ((damaged, version + 1, digest), "sha256 differs"),
        ((tmp_path / "nowhere", version + 1, digest), "manifest.json is missing"),
        ((live.models.snapshot(live.tied, version - 1)[0], version - 1, "d"), "needs allow_older"),
        ((folder, version, digest), "already serves other weights"),
        ((live.models.snapshot(not live.tied, version + 1)[0], version + 1, None), "unknown to the model|is missing"),
    ]
    for (where, number, want), text in attempts:
        want = live.models.snapshot(not live.tied, number)[1] if want is None else want
        with pytest.raises(SwapRefused, match=f"keeps version {version}: .*({text})"):
            live.run(live.engine.swap(where, number, want))
    assert live.run(live.engine.fingerprint(print_ids)) == before
    assert live.run(live.engine.ping())["version"] == version


def test_repeated_and_older_swaps(live):
    version = live.engine.version
    folder, digest = live.models.snapshot(live.tied, version)
    again = live.run(live.engine.swap(folder, version, digest))
    assert (again.changed, again.version, again.digest) == (False, version, digest)
    live.swap(version - 1, allow_older=True)
    assert max(live.gap(t) for t in traces(live.ask(request()))) <= PARITY
    live.swap(version, mode="wait")


def test_late_and_cancelled_calls_drop_their_requests(live):
    slow = [request(f"s{i}", n=8, seed=50 * i, max_new_tokens=200) for i in range(4)]
    told = rf"version {live.engine.version}\): 4 requests \(s0, s1, s2.*not done after"
    with pytest.raises(EngineTimeout, match=told):
        live.ask(*slow, deadline_s=0.1)

    async def cancelled():
        task = await _under_way(live.engine, slow, 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    live.run(cancelled())
    assert live.run(live.engine.ping())["unfinished"] == 0
    assert not live.engine._loop.submit(lambda engine: engine.has_unfinished_requests()).result(10)


def test_requests_that_do_not_fit_are_refused_before_the_engine_sees_them(live):
    with pytest.raises(UserError, match="engine.max_model_len 256"):
        live.ask(request(max_new_tokens=252))
    with pytest.raises(UserError, match="do not fit below engine.max_model_len"):
        live.run(live.engine.score(PROMPT, [4] * 251))


def test_last_a_failed_update_ends_the_engine(live, monkeypatch):
    """Last on each engine: after it, no weights can be named."""
    from pipeline.engine.worker import FolderTransfer

    def failing(self, update_info):
        raise OSError("the disk went away")

    monkeypatch.setattr(FolderTransfer, "receive_weights", failing)
    folder, digest = live.models.snapshot(live.tied, live.next_version())

    async def fail_midway():
        task = await _under_way(live.engine, [request("x", max_new_tokens=200)], 3)
        with pytest.raises(EngineBroken, match="failed midway: OSError: the disk went away"):
            await live.engine.swap(folder, live.next_version(), digest)
        with pytest.raises(EngineBroken, match="failed midway"):
            await task

    live.run(fail_midway())
    for call in (live.engine.generate([request()]), live.engine.ping(), live.engine.fingerprint((3, 4))):
        with pytest.raises(EngineBroken, match="takes no traffic"):
            live.run(call)
