"""DeepSpeed on one and two gloo ranks against plain PyTorch in one process: same losses, norms and weights."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

_spec = importlib.util.spec_from_file_location("tiny_llama", Path(__file__).with_name("tiny_llama.py"))
tiny_llama = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_llama)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DEADLINE_S = 500  # seconds; a busy machine takes most of them to import


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of all rank processes: {(world, rank): report}, and the folder they wrote to."""
    folder = tmp_path_factory.mktemp("ranks")
    tiny_llama.make_model(folder / "model")
    here = Path(__file__).parent
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    started = {}
    for rank, world in ((0, 2), (1, 2), (0, 1)):
        command = [sys.executable, str(here / "rank_process.py"), str(rank), str(world), str(folder)]
        log = (folder / f"{world}-{rank}.log").open("w")
        started[world, rank] = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        for (world, rank), process in started.items():
            code = process.wait(DEADLINE_S)
            assert code == 0, (folder / f"{world}-{rank}.log").read_text()[-3000:]
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    return {key: json.loads((folder / f"{key[0]}-{key[1]}.json").read_text()) for key in started}, folder


def plain_series(folder: Path):
    """The same steps written anew in plain PyTorch: no padding, no micro-batches, no DeepSpeed."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    steps = []
    for step, rows in enumerate(tiny_llama.SERIES):
        streams = tiny_llama.make_streams(step, rows=rows)
        loss, parity = torch.zeros(()), 0.0
        for row in range(rows):
            ids, prompt = torch.from_numpy(streams.input_ids[row]), streams.prompt_length[row]
            scores = (model(ids[None]).logits[0, prompt - 1 : -1] / 0.8).log_softmax(-1)
            logprobs = scores[torch.arange(len(ids) - prompt), ids[prompt:]]
            gap = logprobs.detach() - torch.from_numpy(streams.behaviour_logprobs[row])
            weight = gap.exp().clamp(max=2.0) * torch.from_numpy(streams.advantages[row])
            keep = torch.from_numpy(streams.mask[row])
            loss = loss - (weight * (logprobs - logprobs.detach()).exp())[keep].sum() / streams.tokens
            parity += float(gap.abs()[keep].sum()) / streams.tokens
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        steps.append({"loss": loss.item(), "grad_norm": float(norm), "parity_mean": parity})
    return steps, dict(model.named_parameters())


@pytest.mark.parametrize(("world", "stage"), [(1, 0), (1, 2), (2, 0), (2, 2), (2, 3)])
def test_series_equals_plain_pytorch(reports, world, stage):
    done, folder = reports
    expected, weights = plain_series(folder)
    assert any(step["grad_norm"] > 0.5 for step in expected), "clipping must be at work"
    for rank in range(world):
        steps = done[world, rank][f"series{stage}"]["steps"]
        for found, wanted in zip(steps, expected, strict=True):
            for name, value in wanted.items():
                assert found[name] == pytest.approx(value, abs=1e-5, rel=1e-5), (rank, name)
    state = torch.load(folder / f"state{world}-{stage}.pt")
    assert "lm_head.weight" not in state and set(state) == set(weights)
    for name, value in weights.items():
        assert torch.allclose(state[name], value, atol=2e-5), name


@pytest.mark.parametrize(("world", "stage"), [(1, 0), (1, 2), (2, 0), (2, 2), (2, 3)])
def test_resume_is_bit_exact(reports, world, stage):
    series = reports[0][world, 0][f"series{stage}"]
    assert series["again"] == series["steps"][2:]
    assert series["same"] and series["restored"] == {"ledger": [1, 2]}


@pytest.mark.parametrize("stage", [0, 2])
def test_one_rank_takes_over_the_checkpoint_of_two(reports, stage):
    for found, wanted in zip(
        reports[0][1, 0][f"take_over{stage}"], reports[0][2, 0][f"series{stage}"]["steps"][2:], strict=True
    ):
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-5)
        assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-5)


@pytest.mark.parametrize("stage", [0, 2])
def test_no_rate_and_no_tokens_leave_the_weights_bit_identical(reports, stage):
    assert reports[0][2, 0][f"still{stage}"] and reports[0][2, 0][f"masked{stage}"]


def test_mini_batches_take_several_steps_with_the_first_policy_as_old(reports):
    one, two = reports[0][1, 0]["minis0"], reports[0][2, 1]["minis2"]
    for found, wanted in zip(two, one, strict=True):
        assert found["optimiser_steps"] == 2
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-5)
        assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("stage", [0, 2])
def test_bf16_reports_finite_norms(reports, stage):
    reference = reports[0][1, 0]["series0"]["steps"][0]
    first = reports[0][1, 0][f"bf16_{stage}"][0]
    assert first["loss"] == pytest.approx(reference["loss"], abs=0.05)
    assert first["grad_norm"] == pytest.approx(reference["grad_norm"], rel=0.1)
