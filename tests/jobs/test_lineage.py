"""Back from a reply to its run: a real sqlite store, real snapshots, a real checkpoint file; no Ray."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jobs import lineage
from jobs._lineage_find import check_weights
from jobs._lineage_ledger import by_source, trained_until
from jobs._lineage_query import Found, Query, choose, from_manifest, merged, parse
from jobs._lineage_tree import parents
from pipeline.config import UserError, config_digest, load_config, resolve_paths
from pipeline.loop.ledger import Ledger, State
from pipeline.problems import load_problems
from pipeline.problems.tiny_tokenizer import build_tokenizer, save_tokenizer
from pipeline.storage import open_storage
from pipeline.tracking import Tracker, code_tags
from pipeline.weights import read_manifest, write_snapshot

TRAIN = "problems.train=[{kind: tiny, name: chain_sum, size: 12}, {kind: tiny, name: search, size: 6}]"


# --- pure ---


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("chatcmpl-v3-0123abcd-77f0", [(3, "0123abcd")]),
        ("cmpl-v3-0123abcd-my-own-v9-ffffffff", [(3, "0123abcd")]),  # what a client wrote after it does not count
        ("resp_v12-0123abcd-1", [(12, "0123abcd")]),
        ("v3-0123abcd", [(3, "0123abcd")]),
        ("chatcmpl-v3-0123abcd+v4-0000ffff-x", [(3, "0123abcd"), (4, "0000ffff")]),
        ("8", [(8, "")]),
        ("v8", [(8, "")]),
    ],
)
def test_what_was_asked(text, wanted):
    assert [(query.version, query.digest) for query in parse(text)] == wanted


def test_an_alias_and_what_is_none():
    assert parse("champion")[0].alias == "champion"
    with pytest.raises(UserError, match="did you mean 'champion'"):
        parse("champoin")
    with pytest.raises(UserError, match="no reply id"):
        parse("chatcmpl-8f2b77")  # of another server


def found(version, digest="a" * 64, run="r", number=None, parent=None, read=False):
    return Found(version, digest, f"/x/v{version}", version - 1, "c" * 64, run, number, parent, read)


def test_choice_by_version_digest_and_alias():
    known = [found(8, "b" * 64, "second", 2), found(8, "a" * 64, "first", 1), found(4, "c" * 64, "first", 3)]
    assert choose(Query("8", 8), known, {}) == (known[0], [known[1]])
    assert choose(Query("", 8, "a" * 8), known, {}) == (known[1], [])
    assert choose(Query("champion", alias="champion"), known, {"champion": 3})[0] == known[2]
    with pytest.raises(UserError, match="version 8 is known, but with other weights .v8-bbbbbbbb, v8-aaaaaaaa."):
        choose(Query("", 8, "c" * 8), known, {})
    with pytest.raises(UserError, match="no version 9"):
        choose(Query("9", 9), known, {})
    with pytest.raises(UserError, match="'previous' points at nothing"):
        choose(Query("previous", alias="previous"), known, {"champion": 3})


def test_a_registered_version_is_not_listed_again_for_its_folder():
    registered, folder, other = found(8, number=1), found(8, run=None), found(8, "b" * 64, None)
    assert merged([registered], [folder, other, other]) == [registered, other]


def test_parents_down_to_the_start():
    known = [found(8, number=1), found(4, number=2), found(0)]
    assert parents(known[0], known) == [
        {"version": 7, "to": 5},
        {"version": 4, "digest": "a" * 64, "uri": "/x/v4", "number": 2},
        {"version": 3, "to": 1},
        {"version": 0, "digest": "a" * 64, "uri": "/x/v0", "number": None},
    ]
    assert parents(found(3), []) == [{"version": 3 - 1, "to": 1}]
    assert parents(found(5, parent=None, read=True), []) == []  # its manifest says that it is a start
    assert parents(found(9, parent=2, read=True), [found(2, parent=None, read=True)])[0]["version"] == 2


def make_ledger(ids):
    """Of the problems in turn: one trained in each of steps 0, 1, 2 (the first in epoch 1 again in 2), one dropped."""
    ledger = Ledger()
    for step, one in enumerate(ids[:3]):
        key = ledger.issue(one, 0)
        ledger.move(key, State.SCORED)
        ledger.move(key, State.TRAINED, str(step))
    dropped, again, under_way = ledger.issue(ids[3], 0), ledger.issue(ids[0], 1), ledger.issue(ids[4], 0)
    ledger.move(dropped, State.SCORED)
    ledger.move(dropped, State.DROPPED, "all_wrong")
    ledger.move(again, State.SCORED)
    ledger.move(again, State.TRAINED, "2")
    assert ledger.entries[under_way].state is State.ISSUED
    return ledger


def test_problems_up_to_a_step():
    ledger = make_ledger(["a", "b", "c", "d", "e"])
    assert trained_until(ledger, 0) == ["a"]
    assert trained_until(ledger, 1) == ["a", "b"]
    assert trained_until(ledger, 2) == ["a", "b", "c", "a"]
    assert by_source(["a", "b", "c"], {"a": "x", "b": "x"}) == {"x": 2, "unknown": 1}


# --- the command ---


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run of three steps: registered versions 1 and 3, version 3 the champion, a checkpoint with the ledger."""
    home = tmp_path_factory.mktemp("lineage")
    save_tokenizer(home / "plain")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(build_tokenizer()), **size))
    model.save_pretrained(home / "plain")

    def snapshot(folder, version, cfg_digest):
        with torch.no_grad():
            model.model.norm.weight.fill_(1.0 + version)
        step, parent = version - 1, version - 1 if version else None
        options = {"version": version, "step": step, "parent": parent, "config_digest": cfg_digest}
        return write_snapshot(folder, model.state_dict(), serving_dtype="float32", model_dir=home / "plain", **options)

    snapshot(home / "base", 0, "start")
    arguments = [f"storage.uri={home / 'runs'}", f"tracking.uri=sqlite:///{home}/mlflow.db", f"model.path={home}/base"]
    cfg = resolve_paths(load_config(None, [*arguments, "run.name=first", TRAIN]))
    tracker = Tracker.from_config(cfg)
    tags = {"config_digest": config_digest(cfg), "start_digest": read_manifest(home / "base").digest, **code_tags()}
    run_id = tracker.start("first", cfg.model_dump(mode="json"), tags)
    for version in (1, 3):
        folder = home / "runs" / "first" / "snapshots" / f"v{version}"
        digest = snapshot(folder, version, config_digest(cfg)).manifest.digest
        same = {"version": version, "digest": digest, "step": version - 1, "config_digest": config_digest(cfg)}
        number = tracker.register_version(str(folder), tags={**code_tags(), "code.dirty": "true"}, **same).number
    tracker.set_alias("champion", number)
    tracker.finish()
    ids = [problem.id for problem in load_problems(cfg.problems.train, cfg.run.seed)]
    ids = [ids[0], ids[1], ids[-1], ids[2], ids[3]]
    keep_checkpoint(home / "runs" / "first" / "train" / "first" / "checkpoint_1", make_ledger(ids))
    return home, arguments, run_id, ids


def keep_checkpoint(folder, ledger):
    (folder / "learner").mkdir(parents=True)
    meta = {"step": 2, "version": 3, "digest": "d", "serving_dtype": "float32", "ranks": 1, "zero_stage": 0}
    (folder / "learner.json").write_text(json.dumps({"format": 1, "dtype": "float32", **meta}))
    state = {"controller_state": {"step": 3, "ledger": ledger.to_state()}, "module": torch.zeros(2)}
    torch.save(state, folder / "learner" / "mp_rank_00_model_states.pt")


def traced(capsys, world, what):
    code = lineage.command([what, "--json", *world[1]])
    return code, json.loads(capsys.readouterr().out)["versions"][0]


def test_from_a_reply_to_everything_behind_it(capsys, world):
    home, arguments, run_id, ids = world
    digest = read_manifest(home / "runs/first/snapshots/v3").digest
    code, told = traced(capsys, world, f"chatcmpl-v3-{digest[:8]}-0f")
    assert code == 0 and told["faults"] == []
    assert told["snapshot"]["state"] == "confirmed"
    assert told["registry"] == {"model": "policy", "number": 2, "aliases": ["champion"]}
    assert (told["run"]["id"], told["run"]["name"], told["step"]) == (run_id, "first", 2)
    assert told["config"]["same"] is True and told["config"]["file"] == "config.yaml"
    assert told["code"]["dirty"] == "true" and told["code"]["from"] == "version"
    assert told["problems"]["ids"] == ids[:3] and told["problems"]["groups"] == 4 and told["problems"]["complete"]
    assert told["problems"]["by_source"] == {"tiny/chain_sum": 2, "tiny/search": 1}
    assert [entry["version"] for entry in told["parents"]] == [2, 1]
    assert told["start"]["same"] is True and told["start"]["mark"].startswith("v0-")


def test_alias_number_and_tree(capsys, world):
    assert traced(capsys, world, "champion")[1]["version"] == 3
    assert traced(capsys, world, "1")[1]["problems"]["groups"] == 1
    assert traced(capsys, world, "v0")[1]["registry"] is None
    assert lineage.command(["champion", *world[1]]) == 0
    text = capsys.readouterr().out
    assert "├─ snapshot  confirmed" in text and "└─ start" in text and "policy 2, champion" in text


def test_nothing_found_is_one_sentence(capsys, world):
    for what, told in (("77", "no version 77"), ("v3-00000000", "known, but with other weights")):
        assert lineage.command([what, *world[1]]) == 2
        error = capsys.readouterr().err
        assert told in error and error.count("error:") == 1


def test_damage_and_a_changed_start_are_faults(capsys, world, tmp_path):
    home = world[0]
    folder, base = home / "runs/first/snapshots/v1", home / "base"
    weights, kept = folder / "model.safetensors", (folder / "model.safetensors").read_bytes()
    shutil.move(base, tmp_path / "base")
    try:
        weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        shutil.copytree(home / "runs/first/snapshots/v3", base)
        code, told = traced(capsys, world, "1")
    finally:
        weights.write_bytes(kept)
        shutil.rmtree(base)
        shutil.move(tmp_path / "base", base)
    assert code == 1 and told["snapshot"]["state"] == "damaged" and told["start"]["same"] is False
    assert len(told["faults"]) == 2


def test_what_is_gone_is_said_and_is_no_fault(capsys, world, tmp_path):
    run = world[0] / "runs" / "first"
    shutil.move(run, tmp_path / "first")
    try:
        code, told = traced(capsys, world, "champion")
    finally:
        shutil.move(tmp_path / "first", run)
    assert code == 0 and told["snapshot"]["state"] == "missing"
    assert "not on this machine" in told["problems"]["unknown"]


def test_what_cannot_be_read_is_passed_over_and_said(capsys, caplog, world):
    run = world[0] / "runs" / "first"
    torn, other = run / "published" / "v9", run / "train" / "first" / "checkpoint_0"
    try:
        torn.mkdir(parents=True)
        (torn / "manifest.json").write_text('{"format": ')
        other.mkdir()
        (other / "learner.json").write_text('{"format": 99}')
        code, told = traced(capsys, world, "3")
    finally:
        shutil.rmtree(torn.parent)
        shutil.rmtree(other)
    assert code == 0 and told["problems"]["complete"]
    passed = [text for text in caplog.messages if text.startswith("passed over: ")]
    assert any(str(torn) in text for text in passed) and any(str(other) in text for text in passed)


def test_weights_in_another_store_are_checked_as_well(world, tmp_path):
    folder = world[0] / "runs/first/snapshots/v3"
    store = open_storage(load_config(None, [f"storage.uri={tmp_path}"]).storage)
    store.put_folder(folder, "there/v3")
    cfg = load_config(None, [f"storage.uri={world[0]}/elsewhere"])
    found = replace(from_manifest(str(folder), read_manifest(folder)), uri=f"file://{tmp_path}/there/v3")
    assert check_weights(cfg, found).state == "confirmed"
    assert check_weights(cfg, replace(found, uri=f"file://{tmp_path}/there/v9")).state == "missing"
