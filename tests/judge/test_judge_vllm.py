"""The learned judge on a vLLM engine, against the same weights with transformers."""

import os

import pytest

from pipeline.config import ROOT
from pipeline.config.schema import Judge
from pipeline.judge import JudgeItem, LearnedJudge, Unjudged
from tests.judge.judge_folders import random_judge

pytestmark = pytest.mark.slow
for name, value in {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}.items():
    os.environ.setdefault(name, value)

SHIPPED = ROOT / "infra" / "models" / "judge"
PARITY = 1e-3  # largest difference of probabilities, float32


def questions():
    problem = "a = 7, b = 3, c = 6, d = 3. Which two add up to 6?"
    trial = "a + b = 7 + 3 = 10 vs 6: 4, no\nWait, "
    texts = [trial * tries + f"So the answer is {said}, d." for tries in range(5) for said in "abc"]
    chains = [JudgeItem("What is 5 - 7?", str(i), f"5 - 7 = -2\nSo the answer is {i % 7}.") for i in range(-20, 20)]
    return [*(JudgeItem(problem, "b, d", text) for text in texts), *chains]


@pytest.mark.parametrize("which", ["random", "shipped"])
def test_both_back_ends_give_the_same_probabilities(which, tmp_path):
    folder, items = random_judge(tmp_path) if which == "random" else SHIPPED, questions()
    options = {"name": "learned", "path": str(folder), "max_tokens": 200}
    want = LearnedJudge(Judge(**options)).probabilities(items)
    judge = LearnedJudge(Judge(**options, backend="vllm"))
    try:
        long = JudgeItem(items[0].problem, items[0].gold, "Wait, no\n" * 100)
        found = judge.probabilities([*items, long])
        assert found.pop() is Unjudged.OVERLONG
        assert max(abs(a - b) for a, b in zip(want, found, strict=True)) < PARITY
        again = judge.probabilities(items)  # with every prefix in the cache
        assert max(abs(a - b) for a, b in zip(want, again, strict=True)) < PARITY
        assert judge.describe()["backend"] == "vllm" and judge.describe()["dtype"] == "float32"
    finally:
        judge._judge().backend.close()
