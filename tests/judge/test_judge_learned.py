"""The learned judge: loading, identity, overlong prompts, batches. Random weights: what it says is no matter here."""

import asyncio
import json
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.config.schema import Judge
from pipeline.judge import JudgeActor, JudgeItem, LearnedJudge, PrefixRequest, Unjudged, build_judge
from pipeline.judge.transformers_backend import batches
from pipeline.weights import read_manifest
from tests.judge.judge_folders import random_judge

LINE = "5 - 7 = -2\n"
ITEMS = [JudgeItem("What is 5 - 7?", str(i), LINE * (i % 4) + f"So the answer is {3 * i}.") for i in range(30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return random_judge(tmp_path_factory.mktemp("judge"))


def config(path, **options):
    return Judge(**{"name": "learned", "path": str(path), "max_tokens": 200, **options})


def test_one_forward_pass_gives_probabilities_whatever_the_batch(folder):
    judge = build_judge(config(folder))
    together = judge.probabilities(ITEMS)
    assert all(0 < p < 1 for p in together) and len(set(together)) == len(ITEMS)
    alone = [judge.probabilities([item])[0] for item in ITEMS]
    assert max(abs(a - b) for a, b in zip(together, alone, strict=True)) < 1e-5
    backwards = judge.probabilities(ITEMS[::-1])[::-1]
    assert max(abs(a - b) for a, b in zip(together, backwards, strict=True)) < 1e-5
    assert judge.probabilities([]) == []


def test_the_probability_is_that_of_yes_against_no_at_the_last_position(folder):
    import torch
    from transformers import AutoModelForCausalLM

    judge = LearnedJudge(config(folder))
    prompt = judge._judge().prompt
    (ids,) = prompt.ids(ITEMS[:1])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        no, yes = (float(model(torch.tensor([ids])).logits[0, -1, token]) for token in prompt.choices)
    assert judge.probabilities(ITEMS[:1])[0] == pytest.approx(1 / (1 + math.exp(no - yes)), abs=1e-5)


def test_a_prompt_that_is_too_long_is_not_judged(folder):
    long = JudgeItem("What is 5 - 7?", "-2", "5 - 7 = -2\n" * 100 + "So the answer is -2.")
    judge = LearnedJudge(config(folder))
    found = judge.probabilities([ITEMS[0], long, ITEMS[1]])
    assert found[1] is Unjudged.OVERLONG
    assert found[::2] == pytest.approx(judge.probabilities(ITEMS[:2]), abs=1e-5)
    exact = judge.prompt_lengths(ITEMS[:1])[0]
    assert LearnedJudge(config(folder, max_tokens=exact)).probabilities(ITEMS[:1]) != [Unjudged.OVERLONG]
    assert LearnedJudge(config(folder, max_tokens=exact - 1)).probabilities(ITEMS[:1]) == [Unjudged.OVERLONG]


def test_it_says_which_weights_judge(folder):
    judge = LearnedJudge(config(folder))
    digest = read_manifest(folder).digest
    assert judge.describe() == {
        "path": str(folder), "digest": digest, "version": "0", "backend": "transformers", "device": "cpu",
        "dtype": "float32",
    }  # fmt: skip
    assert LearnedJudge(config(folder, digest=digest)).describe()["digest"] == digest


def test_other_weights_than_named_are_refused(folder, tmp_path):
    other = random_judge(tmp_path, seed=1)
    digest = read_manifest(folder).digest
    with pytest.raises(UserError, match=r"judge\.path: .* has digest .*, expected " + digest[:12]):
        LearnedJudge(config(other, digest=digest)).describe()


def test_a_damaged_folder_is_refused(tmp_path):
    folder = random_judge(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\x00\x40")
    with pytest.raises(UserError, match="does not have the values that the manifest states"):
        LearnedJudge(config(folder)).probabilities(ITEMS)


def test_a_public_model_has_a_digest_too(tmp_path):
    folder = random_judge(tmp_path, manifest=False)
    found = LearnedJudge(config(folder)).describe()
    assert "version" not in found
    assert LearnedJudge(config(folder, digest=found["digest"])).probabilities(ITEMS[:1])
    with pytest.raises(UserError, match="expected abc"):
        LearnedJudge(config(folder, digest="abc")).describe()


def test_folders_that_cannot_judge(folder, tmp_path):
    with pytest.raises(UserError, match="no judge at .*; train one"):
        LearnedJudge(config(tmp_path / "none")).describe()
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(UserError, match="no safetensors"):
        LearnedJudge(config(tmp_path)).describe()
    with pytest.raises(UserError, match="judge.max_tokens is 256 but the judge in .* has 256 positions"):
        LearnedJudge(config(folder, max_tokens=256)).describe()


def test_the_actor_loads_it_late_and_tells_a_users_mistake_as_one(folder, tmp_path):
    actor = JudgeActor(config(tmp_path / "none"))  # nothing is read yet
    ask = [PrefixRequest("a", "p", "g", [(0, 3)], ["x"])]
    for call in (actor.describe, lambda: actor.find_prefixes(ask)):
        with pytest.raises(UserError, match="no judge at"):
            asyncio.run(call())
    found = asyncio.run(JudgeActor(config(folder)).describe())
    assert (found["name"], found["digest"]) == ("learned", read_manifest(folder).digest)
    assert asyncio.run(JudgeActor(Judge()).describe()) == {"name": "exact"}


def test_it_is_loaded_once_by_whichever_thread_comes_first(folder):
    judge, seen = LearnedJudge(config(folder)), []
    threads = [threading.Thread(target=lambda: seen.append(judge._judge())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(seen) == 4 and all(one is seen[0] for one in seen)


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 100))
def test_batches_hold_every_row_once_and_stay_within_the_limit(lengths, most):
    found = list(batches(lengths, most))
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= most
    widths = [lengths[row] for batch in found for row in batch]
    assert widths == sorted(widths)
