"""`jobs.advise --endpoint`: what it is asked, what it sends, and the profile it puts together."""

import json

import pytest

import jobs.advise
from jobs._observe import Observed, Row, read_rows
from jobs._profile import overthinking_of, profile_of, said_figures, write_profile
from pipeline.config import UserError
from serve.advice_profile import Profile, read_profile
from serve.inference import InferenceResult
from serve.observation.samples import Sample

ENGINE = {"device": "cpu", "max_model_len": 512, "max_num_seqs": 4, "kv_cache_blocks": 16, "block_size": 4}


def reply(tokens):
    return InferenceResult("", "", 0, 0, tokens, None, 0.1, 0.2, None, "stop", {})


def observed(**changed):
    running = {"vllm:num_requests_running": 2.0, "vllm:kv_cache_usage_perc": 0.25}
    return Observed(ENGINE, 1, samples=[Sample(0, "1", running), Sample(1, "1", running)], **changed)


def rows(tmp_path, *lines):
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(lines))
    return read_rows(file)


def test_a_profile_of_users_traffic():
    assert profile_of(observed(), None, {"own_weights": True}) == Profile(
        device="cpu", gpus=0, own_weights=True, context_tokens=512, kv_capacity_tokens=64, kv_usage=0.25,
        batch_occupancy=0.5,
    )  # fmt: skip


def test_a_profile_of_our_own_traffic_knows_its_tokens():
    prompts = [[1, 1, 1, 1, 5], [2] * 9, [1, 1, 1, 1, 6]]
    sent = [Row(()), Row(()), Row(())]
    gaps = [0.001 * gap for gap in range(1, 22)]
    found = profile_of(observed(sent=sent, prompts=prompts, replies={0: reply(3), 1: reply(7)}, gaps=gaps), None, {})
    assert found.itl_p95_ms == 20
    assert (found.prompt_tokens_p50, found.prompt_tokens_p95) == (5, 9)
    assert (found.shared_prefix_share, found.reuse_distance_tokens) == (round(4 / 19, 4), 8 + 10)


def test_what_people_say_is_checked():
    assert said_figures(["own_weights=true", "itl_target_ms=20"]) == {"own_weights": True, "itl_target_ms": 20}
    with pytest.raises(UserError, match="takes name=value"):
        said_figures(["own_weights"])
    with pytest.raises(UserError, match="--figure: unknown figure 'own_weihgts'; did you mean 'own_weights'"):
        profile_of(observed(), None, {"own_weihgts": True})


def test_a_profile_is_kept(tmp_path):
    profile = profile_of(observed(), None, {})
    write_profile(tmp_path / "p.yaml", profile, "measured by: x")
    assert read_profile(tmp_path / "p.yaml") == profile
    assert (tmp_path / "p.yaml").read_text().startswith("# measured by: x\ndevice: cpu\n")
    with pytest.raises(UserError, match="cannot be written"):
        write_profile(tmp_path / "no/p.yaml", profile, "")


def test_rows(tmp_path):
    asked = rows(tmp_path, '{"prompt": "a", "max_tokens": 5}', "", '{"messages": [{"role": "user", "content": "b"}]}')
    assert [row.messages[0]["content"] for row in asked] == ["a", "b"] and asked[0] == Row(asked[0].messages, 5)
    assert rows(tmp_path, '{"prompt": "a", "at": 1.5}')[0].at == 1.5


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ([""], "holds no prompts"),
        (["{"], "line 1: "),
        (['{"prompt": "a"}', '{"prmpt": "a"}'], "line 2: a row has prompt or messages"),
        (['{"prompt": "a", "messages": []}'], "a row has prompt or messages"),
        (['{"prompt": "a", "at": -1}'], "numbers of at least 0"),
        (['{"prompt": "a", "max_tokens": "5"}'], "line 1: "),
        (['{"messages": [1]}'], "a text or a list of messages"),
        (['{"prompt": "a", "at": 1}', '{"prompt": "a"}'], "give `at` to all prompts or to none"),
    ],
)
def test_rows_that_are_none(tmp_path, lines, part):
    with pytest.raises(UserError) as refused:
        rows(tmp_path, *lines)
    assert part in str(refused.value) and "\n" not in str(refused.value)


def test_overthinking_of_an_evaluation_and_of_a_run(tmp_path):
    (tmp_path / "evaluation.json").write_text(json.dumps({"all": {"nrp_share": 0.625}}))
    assert overthinking_of(str(tmp_path)) == overthinking_of(str(tmp_path / "evaluation.json")) == 0.375
    run = tmp_path / "run"
    (run / "report").mkdir(parents=True)
    answers = {"a": {"necessary": 30, "thinking": 100}, "b": {"necessary": 10, "thinking": 20}}
    (run / "report/after.json").write_text(json.dumps({"answers": answers}))
    assert overthinking_of(str(run)) == round(1 - 40 / 120, 4)


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({}, "has neither evaluation.json nor report/after.json"),
        ({"evaluation.json": {"all": {"nrp_share": None}}}, "tells no NRP share"),
        ({"evaluation.json": []}, "tells no NRP share"),
    ],
)
def test_overthinking_that_is_not_told(tmp_path, files, part):
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    with pytest.raises(UserError, match=part):
        overthinking_of(str(tmp_path))


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ([], "give --profile FILE, or --endpoint URL"),
        (["--profile", "p", "--endpoint", "http://x"], "give --profile FILE, or --endpoint URL"),
        (["--profile", "p", "--seconds", "5"], "--seconds goes with --endpoint"),
        (["--profile", "p", "--figure", "fp8=true"], "--figure goes with --endpoint"),
        (["--endpoint", "http://127.0.0.1:9", "--clients", "4"], "--clients sends --prompts"),
        (["--endpoint", "http://127.0.0.1:9", "--seconds", "0"], "--seconds takes a whole number from 1"),
        (["--endpoint", "http://127.0.0.1:9"], "no endpoint answers at http://127.0.0.1:9/admin/effective-config"),
        (["--endpoint", "http://127.0.0.1:9", "--prompts", "no.jsonl"], "cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(capsys, args, part):
    assert jobs.advise.command(args) == 2
    err = capsys.readouterr().err
    assert part in err and err.count("\n") == 1


def test_a_dry_run_says_what_would_be_measured(capsys):
    assert jobs.advise.command(["--endpoint", "http://x", "--requests", "50", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "reads the figures of http://x until 50 requests have ended, beside its users' traffic" in out
