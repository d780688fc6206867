import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import jobs.serve
from jobs._dashboard import local_dashboard
from pipeline.config import UserError, load_config
from pipeline.problems.tiny_tokenizer import build_tokenizer, save_tokenizer
from pipeline.weights import read_reference, verify
from serve import first_snapshot
from serve.effective import compare


@pytest.fixture
def model(tmp_path):
    save_tokenizer(tmp_path / "model")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(build_tokenizer()), **size)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_plain_model_becomes_version_zero_once(model, tmp_path):
    cfg = load_config(None, [])
    first = first_snapshot.as_snapshot(model, tmp_path / "home", cfg)
    assert (first.version, verify(first.uri, base=model).digest) == (0, first.manifest.digest)
    assert first_snapshot.as_snapshot(model, tmp_path / "home", cfg) == first
    assert len(list((tmp_path / "home").iterdir())) == 1
    assert len(read_reference(first.uri).logprobs) == 31


def test_snapshot_is_served_as_it_is(model, tmp_path):
    cfg = load_config(None, [])
    first = first_snapshot.as_snapshot(model, tmp_path / "home", cfg)
    again = first_snapshot.as_snapshot(tmp_path / "home" / first.uri.split("/")[-1], tmp_path / "other", cfg)
    assert again == first and not (tmp_path / "other").exists()


def test_without_services_the_way_out_is_told(tmp_path):
    with pytest.raises(UserError, match="jobs.services up"):
        local_dashboard(str(tmp_path))


def test_dry_run_starts_nothing(model, capsys):
    assert jobs.serve.command(["--dry-run", f"model.path={model}", "serve.replicas=2"]) == 0
    assert "2 replica(s)" in capsys.readouterr().out


def test_dry_run_tells_scaling_routing_and_tools(model, capsys):
    options = ["serve.autoscaling={max_replicas: 3, target_ongoing_requests: 6}", "serve.routing=prefix"]
    assert jobs.serve.command(["--dry-run", f"model.path={model}", *options, "serve.tool_parser=hermes"]) == 0
    out = capsys.readouterr().out
    assert "1 to 3 replicas, 6 requests each" in out and "prompt's start" in out and "tool calls: hermes" in out


def test_dry_run_refuses_a_tool_parser_that_does_not_exist(model, capsys):
    assert jobs.serve.command(["--dry-run", f"model.path={model}", "serve.tool_parser=hermess"]) == 2
    assert "'hermes'" in capsys.readouterr().err


@pytest.mark.parametrize(("found", "code"), [(4, 0), (8, 1)])
def test_what_is_in_effect_is_shown(monkeypatch, capsys, found, code):
    rows = compare({"max_num_seqs": 4}, {"max_num_seqs": found})
    monkeypatch.setattr(jobs.serve, "effective", lambda dashboard: rows)
    assert jobs.serve.command(["--show-effective", "--dashboard", "http://d"]) == code
    assert f"max_num_seqs  4          {found}" in capsys.readouterr().out


def test_job_and_serve_config_start_with_the_same_policy(model, tmp_path, monkeypatch):
    import serve.app

    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr(serve.app, "application", lambda cfg, folder, options: started.append((folder, options)))
    overrides = [f"model.path={model}", "storage.uri=results", "serve.swap_mode=keep"]
    file = tmp_path / "run.yaml"
    file.write_text("{}")
    serve.app.build({"config": str(file), "overrides": overrides})
    (folder, options), cfg = started[0], load_config(str(file), overrides)
    policy = first_snapshot.first_policy(cfg, jobs.serve.results_folder(cfg))
    assert folder == policy.folder and policy.folder.startswith(str(tmp_path / "results" / "endpoint"))  # absolute
    assert (policy.version, policy.mode) == (0, "keep")
    assert {key: options["user_config"][key] for key in ("folder", "digest")} == {
        "folder": folder, "digest": policy.digest
    }  # fmt: skip
