"""Pieces that need torch but no process group: collation, padding, pruning, checkpoints' metadata."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.config import UserError
from pipeline.learner import checkpoint
from pipeline.learner.deepspeed_engine import load_model
from pipeline.learner.policy_step import collate, score
from pipeline.learner.streams import TokenStreams

_spec = importlib.util.spec_from_file_location("tiny_llama", Path(__file__).with_name("tiny_llama.py"))
tiny_llama = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_llama)

CPU = torch.device("cpu")
PAD_IS_EOS = 2


def streams(rows: list[tuple[list[int], list[int]]]) -> TokenStreams:
    """Rows of (prompt, response), nothing masked."""
    sizes = [len(response) for _, response in rows]
    return TokenStreams(
        input_ids=tuple(np.array(prompt + response) for prompt, response in rows),
        prompt_length=tuple(len(prompt) for prompt, _ in rows),
        advantages=tuple(np.arange(1, size + 1, dtype=np.float32) for size in sizes),
        behaviour_logprobs=tuple(np.full(size, -1, np.float32) for size in sizes),
        mask=tuple(np.ones(size, bool) for size in sizes),
        problem_id=tuple(str(row) for row in range(len(rows))),
        versions=((),) * len(rows),
    )


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Stands in for DeepSpeed's wrapper where only the forward pass matters."""
    model = load_model(tiny_llama.make_model(tmp_path_factory.mktemp("m") / "model"), "float32")

    class Plain(SimpleNamespace):
        def __call__(self, **options):
            return model(**options)

    return Plain(module=model)


def test_the_first_eos_is_scored_and_padding_is_not():
    """Padding and EOS share an id; a full-length row has no EOS; a prompt holds one."""
    batch = collate(streams([([11, 12], [21, 22, 2]), ([11, 12], [21, 22, 23, 24]), ([11, 2, 12], [21])]), CPU)
    assert batch.input_ids.shape == (3, 6) and batch.start == 1
    assert batch.rows.tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    assert (batch.places + batch.start).tolist() == [1, 2, 3, 1, 2, 3, 4, 2], "one place before each target"
    assert batch.targets.tolist() == [21, 22, 2, 21, 22, 23, 24, 21]
    assert batch.advantages.tolist() == [1, 2, 3, 1, 2, 3, 4, 1]


def test_rows_without_tokens_and_batches_without_rows():
    empty = collate(streams([([11], []), ([11, 12], [21])]), CPU)
    assert empty.rows.tolist() == [1] and empty.targets.tolist() == [21]
    nothing = collate(streams([]), CPU)
    assert nothing.input_ids.shape == (1, 2) and nothing.rows.numel() == 0


def test_logprobs_do_not_depend_on_padding(engine):
    rows = [([11, 12], [21, 22, PAD_IS_EOS]), ([5, 6, 7, 8], [9, 10, 11, 12, 13, 14]), ([11, PAD_IS_EOS, 12], [21, 3])]
    together = score(engine, collate(streams(rows), CPU), 0.7)
    alone = torch.cat([score(engine, collate(streams([row]), CPU), 0.7) for row in rows])
    assert torch.allclose(together, alone, atol=1e-5)
    ids = torch.tensor([[11, 12, 21, 22, 2]])
    by_hand = (engine.module(ids).logits[0] / 0.7).log_softmax(-1)[[1, 2, 3], [21, 22, 2]]
    assert torch.allclose(together[:3], by_hand, atol=1e-5)
    ids = torch.tensor([[11, PAD_IS_EOS, 12, 21, 3]])  # the prompt's own EOS is attended to
    by_hand = (engine.module(ids).logits[0] / 0.7).log_softmax(-1)[[2, 3], [21, 3]]
    assert torch.allclose(together[-2:], by_hand, atol=1e-5)


def test_an_empty_micro_batch_gives_every_parameter_a_zero_gradient(engine):
    engine.module.zero_grad()
    score(engine, collate(streams([]), CPU), 1.0).sum().backward()
    gradients = [parameter.grad for parameter in engine.module.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_dropout_is_off(tmp_path):
    import json

    folder = Path(tiny_llama.make_model(tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    model = load_model(str(folder), "float32")
    ids = torch.arange(3, 20)[None]
    assert model.training and torch.equal(model(ids).logits, model(ids).logits)
    with pytest.raises(UserError, match="holds no config.json"):
        load_model(str(tmp_path), "float32")


def meta(**changes) -> checkpoint.CheckpointMeta:
    base = {"step": 4, "version": 5, "digest": "d", "serving_dtype": "float32", "ranks": 2, "zero_stage": 2}
    return checkpoint.CheckpointMeta(**(base | {"dtype": "float32"} | changes))


def test_other_rank_counts_convert_and_other_layouts_are_refused(tmp_path):
    assert not checkpoint.needs_conversion(meta(), 2, 2, "float32")
    assert checkpoint.needs_conversion(meta(), 3, 2, "float32")
    assert not checkpoint.needs_conversion(meta(zero_stage=0), 3, 0, "float32")
    with pytest.raises(UserError, match="learner.zero_stage=2, this run has 3"):
        checkpoint.needs_conversion(meta(), 2, 3, "float32")
    with pytest.raises(UserError, match="model.dtype=float32, this run has bfloat16"):
        checkpoint.needs_conversion(meta(), 2, 2, "bfloat16")
    with pytest.raises(UserError, match="holds no learner.json"):
        checkpoint.read_meta(tmp_path)


@pytest.mark.slow
def test_a_failed_conversion_names_both_numbers_and_the_way_out(tmp_path):
    (tmp_path / checkpoint.TAG).mkdir()
    with pytest.raises(UserError, match="saved by 2 ranks and this run has 3.*resume with learner.ranks=2"):
        checkpoint.convert(tmp_path, tmp_path / "out", meta(), 3)


def test_pruning_keeps_the_newest_snapshots_of_any_attempt(tmp_path):
    from pipeline.learner.train_function import clear_leftovers, prune

    for age, name in enumerate(["v1-a1", "v2-a1", "v3-a1", "v2-a2", "v3-a2"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    (tmp_path / "other").mkdir()
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "v2-a2", "v3-a2"]
    (tmp_path / "checkpoint-xyz").mkdir()
    (tmp_path / "universal").mkdir()
    clear_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "v2-a2", "v3-a2"]
