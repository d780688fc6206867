"""Weights to swap between, what is refused, the order of the swaps and the figures made of them; no Ray, no engine."""

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest
import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from jobs import bench_swap
from jobs._bench_endpoint import Target, find_or_deploy, replica_process
from jobs._bench_figure import latency_figure
from jobs._bench_load import Load
from jobs._bench_replies import Reply
from jobs._bench_requests import Shape
from jobs._bench_summary import broken_promises, summarise
from jobs._bench_swaps import KINDS, Record, Swaps, check_kill
from jobs._bench_weights import Alternating, bad_snapshots
from pipeline.config import ROOT, UserError, load_config
from pipeline.problems.tiny_tokenizer import build_tokenizer, save_tokenizer
from pipeline.weights import SnapshotError, read_reference, verify
from serve import client
from serve.arguments import app_args, running_config
from serve.policy import Policy, Wanted, fingerprint


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    save_tokenizer(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(build_tokenizer()), tie_word_embeddings=True, **size))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def weights(base, tmp_path_factory):
    return Alternating(tmp_path_factory.mktemp("weights"), base, load_config(None, []), seed=5)


def test_versions_rise_and_weights_alternate(weights, base):
    made = [weights.version(7 + swap, swap) for swap in (1, 2, 3)]
    assert [verify(one.uri, expect=one.manifest.digest, base=base).version for one in made] == [8, 9, 10]
    digests = [one.manifest.digest for one in made]
    assert digests[0] == digests[2] != digests[1]
    assert verify(weights.kept[0]).version == 0 and made[1].manifest.parent == 8  # the linked source stays as it was
    references = [read_reference(one.uri) for one in made]
    assert references[0] == references[2] and 0 < references[0].distance(references[1].logprobs) < 1
    assert (weights.version(8, 1)) == made[0]


def test_the_change_is_the_same_for_the_same_seed(weights, base, tmp_path):
    same, other = (Alternating(tmp_path / str(seed), base, load_config(None, []), seed) for seed in (5, 6))
    first = weights.version(20, 1).manifest.digest
    assert same.version(1, 1).manifest.digest == first != other.version(1, 1).manifest.digest


def test_each_kind_is_refused_for_its_own_reason(weights, base, tmp_path):
    made = bad_snapshots(tmp_path, weights.kept[0], 9)
    assert len(made) == KINDS and len({bad.kind for bad in made}) == KINDS
    for bad in made:
        with pytest.raises(SnapshotError, match=bad.expected):
            verify(bad.folder, expect=bad.digest, base=base)
    assert verify(weights.kept[0], base=base).version == 0  # links: spoiling a copy spoils no good one


# --- the swaps, against a client that only notes ---


class Noted:
    """In place of serve.client's calls; refuses what `verify` refuses."""

    def __init__(self, base):
        self.base, self.asked = base, []

    def swap(self, dashboard, policy, deadline):
        version, folder, digest = policy.version, policy.folder, policy.digest
        try:
            verify(folder, expect=digest, base=self.base)
        except SnapshotError as error:
            raise client.SwapRefused(f"replica r: {error}") from error
        self.asked.append(version)
        figures = {"pause_seconds": 0.01 * version, "drain_seconds": 0.2, "bytes": 10, "drained": True}
        return client.SwapReport(0.5, version, digest, {"r": {"replica": "r", **figures}})


@pytest.fixture
def target(base):
    endpoint = client.Endpoint(
        "http://127.0.0.1:1", "policy", {"r": {"replica": "r", "version": 4, "pid": os.getpid()}}
    )
    return Target("http://127.0.0.1:2", endpoint, Wanted(Policy(4, str(base), "e" * 64)), False)


def test_swaps_spread_over_the_phase_and_refusals_between(monkeypatch, weights, base, target, tmp_path):
    noted = Noted(base)
    monkeypatch.setattr(client, "swap", noted.swap)
    swaps = Swaps(load_config(None, []), target, weights, 3, tmp_path)
    told = []
    asyncio.run(swaps.during(3, iter([0.0, 0.2, 0.4, 0.6, 0.9]).__next__, told.append))
    assert noted.asked == [5, 6, 7] and told == ["swap 1/3", "swap 2/3", "swap 3/3"]
    record = swaps.record
    assert record.failures == [] and len(record.refused) == KINDS
    assert [one.version for one in record.confirmed] == [4, 5, 6, 7]
    digests = [weights.version(5, 1).manifest.digest, weights.version(6, 2).manifest.digest]
    assert {fingerprint(4, "e" * 64), fingerprint(5, digests[0]), fingerprint(6, digests[1])} < record.marks
    result = summarise([], record, 3)
    assert result["pause_ms"] == {"p50": 60.0, "p99": 69.8} and result["bytes"] == 10 and result["swaps"] == 3
    assert broken_promises(result, KINDS) == ["no request was sent"]


def test_a_failed_swap_and_a_served_bad_one_are_told(monkeypatch, weights, base, target, tmp_path):
    def swap(dashboard, policy, deadline):
        if "bad-" in policy.folder:
            return client.SwapReport(0.1, policy.version, policy.digest, {})
        raise client.SwapTimeout("not confirmed; waiting for: r")

    monkeypatch.setattr(client, "swap", swap)
    swaps = Swaps(load_config(None, []), target, weights, 1, tmp_path)
    asyncio.run(swaps.during(1, lambda: 1.0, lambda _: None))
    broken = broken_promises(summarise([], swaps.record, 1), KINDS)
    assert any("0 of 1 swaps" in text for text in broken) and any("0 of 6 kinds" in text for text in broken)
    assert swaps.record.failures[0].startswith("swap to version 5: SwapTimeout")
    assert "the nan snapshot was served" in swaps.record.failures


def test_a_load_that_stands_still_ends_the_swaps(monkeypatch, weights, target):
    monkeypatch.setattr("jobs._bench_swaps.STALL_S", 0.05)
    swaps = Swaps(load_config(None, []), target, weights, 3, None)
    asyncio.run(asyncio.wait_for(swaps.during(3, lambda: 0.1, lambda _: None), 10))
    assert swaps.record.failures == ["waited 0.05 s for any reply of the load: 3 swaps are left out"]


def test_a_dashboard_that_does_not_answer_for_once_is_a_failure_and_no_end(monkeypatch, weights, target):
    def away(*arguments, **options):
        raise UserError("no Ray dashboard answers")

    monkeypatch.setattr(client, "swap", away)
    monkeypatch.setattr(client, "status", away)
    swaps = Swaps(load_config(None, []), target, weights, 1, None)
    swaps.kill_after = 1
    asyncio.run(swaps.during(1, lambda: 1.0, lambda _: None))
    asyncio.run(bench_swap._restore(swaps))
    assert [text.split(": ")[0] for text in swaps.record.failures] == [
        "swap to version 5", "the replicas' states", "no replica was killed", "back to the former weights",
    ]  # fmt: skip


def test_an_endpoint_from_a_serve_file_is_found(monkeypatch):
    config = yaml.safe_load((ROOT / "infra" / "serve.yaml").read_text())["applications"][0]
    held = Policy(4, "/v4", "e" * 64).as_config()
    app = {
        "deployed_app_config": config,
        "deployments": {"HotSwapServer:policy": {"deployment_config": {"user_config": held}}},
    }
    monkeypatch.setattr(client, "details", lambda dashboard: {"applications": {client.APP: app}})
    monkeypatch.setattr(client, "status", lambda dashboard: client.Endpoint("http://x", "policy", {"r": {}}))
    found = find_or_deploy(load_config(None, []), "http://127.0.0.1:2")
    assert found.policy.version == 4 and not found.deployed
    args = {"config": str(ROOT / "infra" / "presets" / "tiny.yaml"), "overrides": ["serve.model_id=mine"]}
    assert running_config(args).serve.model_id == "mine"
    assert running_config(app_args(load_config(None, ["engine.max_model_len=777"]), "/m")).engine.max_model_len == 777


def test_only_a_replica_of_ours_is_ever_killed(target):
    with pytest.raises(UserError, match="needs another replica"):
        check_kill(target)
    with pytest.raises(UserError, match="is no replica of this endpoint; it is left alone"):
        replica_process({"replica": "r", "pid": os.getpid()}, target.dashboard)
    with pytest.raises(UserError, match="not on this machine"):
        replica_process({"replica": "r", "pid": os.getpid()}, "http://10.0.0.5:8265")
    for pid in (None, 2**22 + 1):
        with pytest.raises(UserError, match="not on this machine"):
            replica_process({"replica": "r", "pid": pid}, target.dashboard)


def test_a_kill_waits_for_the_replacement(monkeypatch, weights, target, tmp_path):
    title = "import time; time.sleep(60)  # ray::ServeReplica:policy:HotSwapServer:policy"
    victim = subprocess.Popen([sys.executable, "-c", title])
    states = iter(["old", "gone", "new"])

    def status(dashboard):
        two, now = {"replica": "two", "version": 4, "pid": 1}, next(states)
        one = {"replica": "one", "version": 4, "pid": victim.pid}
        replicas = {"old": {"one": one, "two": two}, "gone": {"two": two}, "new": {"three": one, "two": two}}[now]
        return client.Endpoint("http://x", "policy", replicas)

    monkeypatch.setattr(client, "status", status)
    try:
        swaps = Swaps(load_config(None, []), target, weights, 1, None)
        asyncio.run(swaps._kill())
        assert victim.wait(5) == -9
    finally:
        victim.kill()
    kill = swaps.record.kill
    assert kill["replica"] == "one" and kill["pid"] == victim.pid and kill["recovered_s"] >= 1.0
    assert swaps.record.failures == [] and swaps.record.context().kill == (kill["at"], kill["until"])


# --- figures ---


def reply(phase, began, seconds, stream=False, tokens=4, **options):
    shape, mark = Shape(0, "a", 4, stream, 0), "v4-eeeeeeee"
    whole = {"status": 200, "header": mark, "marks": [mark], "id": f"c-{mark}", "finish": "length", "done": True}
    return Reply(shape, phase, began, began + seconds, began + 0.1, tokens=tokens, usage=tokens, **{**whole, **options})


def test_figures_by_hand():
    record = Record({"v4-eeeeeeee"}, [], kill={"at": 100.0, "until": 110.0})
    replies = [
        reply("quiet", 0, 1.0),
        reply("quiet", 1, 1.0, True),
        reply("swapping", 5, 2.0),
        reply("swapping", 7, 3.0),
    ]
    near = [reply("swapping", 101, 50.0), reply("swapping", 102, 1.0, True, tokens=2, done=False)]
    result = summarise([*replies, *near, reply("swapping", 8, 0.1, status=503, error="status 503: no")], record, 0)
    assert result["requests"] == 7 and result["failed"] == 1 and result["broken_streams"] == 1
    assert result["latency_ratio"] == 2.99 and result["latency_ratio_p50"] == 2.5  # without the replies near the kill
    assert result["latency_s"]["quiet"]["replies"] == 2 and result["first_token_s"]["quiet"]["p50"] == 0.1
    assert "failed: status 503: no" in result["failures"]
    assert broken_promises(result, 0) == ["1 of 7 replies: failed"]  # a stream may break while a replica is killed
    assert {"truncated", "mixed_unmarked", "without_version"} <= result.keys()
    assert json.loads(json.dumps(result))["kill"]["at"] == 100.0


def test_the_picture_has_every_swap():
    swaps = [{"began": 5.0, "ended": 6.0}, {"began": 8.0, "ended": 9.0}]
    figure = latency_figure([reply("quiet", 0, 1.0), reply("swapping", 5, 2.0)], Record(set(), [], swaps=swaps))
    axes = figure.axes[0]
    assert len(axes.collections) == 2 and len(axes.patches) == 2
    assert axes.get_legend_handles_labels()[1][-1] == "swap, to the last confirmation"


# --- the command ---


@pytest.mark.parametrize(
    "arguments", [["--requests", "0"], ["--swaps", "0"], ["--stream-share", "2"], ["--requests", "3"]]
)
def test_mistakes_are_told_before_anything_starts(capsys, arguments):
    assert bench_swap.command(arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_dry_run_starts_nothing(capsys):
    assert bench_swap.command(["--dry-run", "--swaps", "3"]) == 0
    assert "beside 3 swaps" in capsys.readouterr().out


def test_a_swapping_phase_lasts_until_its_swaps_are_over(monkeypatch):
    """More requests than planned go out while a swap takes its time, and a failing swap ends the load."""

    class Bar:
        total, n = 1, 0

        def update(self):
            self.n += 1

        def set_postfix_str(self, text):
            pass

    class Slow:
        async def during(self, count, progress, note):
            while progress() < 2:
                await asyncio.sleep(0)

    class Fails:
        async def during(self, count, progress, note):
            raise UserError("no such process")

    class Waits:
        async def during(self, count, progress, note):
            await asyncio.sleep(60)

    load = Load(None, "", "", 2)

    async def ask(shape, phase):
        await asyncio.sleep(0)
        return reply(phase, time.monotonic(), 0.0)

    monkeypatch.setattr(load, "ask", ask)
    asyncio.run(bench_swap._swapping(load, Slow(), [WHOLE] * 5, 1, Bar()))
    assert 10 <= len(load.replies) <= 20
    with pytest.raises(UserError, match="no such process"):
        asyncio.run(bench_swap._swapping(load, Fails(), [WHOLE] * 5, 1, Bar()))

    async def breaks(*arguments):
        raise OSError("too many open files")

    monkeypatch.setattr(load, "run", breaks)
    with pytest.raises(OSError, match="too many open files"):
        asyncio.run(asyncio.wait_for(bench_swap._swapping(load, Waits(), [WHOLE] * 5, 1, Bar()), 10))


WHOLE = Shape(0, "a", 4, False, 0)
