"""One row's way from a file through shuffling, sampling and judging: it keeps its own answer all along."""

import asyncio
import json

import pytest

from pipeline.problems import load_problems
from pipeline.traces import Group, Stop, Trace, VersionSpan
from tests.loop.builders import TOKENIZER, FakeEngine, Fakes

ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, 9)]


class FromPrompt(FakeEngine):
    """Solves what the prompt's own tokens ask, whatever the problem is called: right first, then off by one."""

    def _group(self, request):
        prompt = TOKENIZER.decode(request.prompt_ids)
        value = int(prompt.split("What is ")[1].split(" ")[0])
        traces = tuple(self._answer(request, i, value, 2 * value + i) for i in range(request.n))
        return Group(request.issue_id, request.problem_id, traces)

    def _answer(self, request, sample, value, answer):
        thinking = f"{value} + {value} = {answer}\nSo the answer is {answer}.\n"
        text = thinking + f"</think>\nThe answer is \\boxed{{{answer}}}.<eos>"
        ids = tuple(TOKENIZER.encode(text, add_special_tokens=False))
        spans = (VersionSpan(0, 0, len(ids)),)
        return Trace(request.problem_id, sample, request.prompt_ids, ids, (-0.5,) * len(ids), spans, Stop.EOS, text)


@pytest.mark.parametrize("seed", [0, 1])
def test_rewards_reach_the_row_whose_answer_it_is(tmp_path, seed):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    source = f"{{kind: jsonl, path: {file}, columns: {{prompt: question, gold: answer}}}}"
    fakes = Fakes(tmp_path, f"problems.train=[{source}]", f"run.seed={seed}", "rollout.prompts_per_step=8")
    fakes.engines = [FromPrompt([], None) for _ in fakes.engines]
    fakes.controller = fakes.new_controller()
    found = asyncio.run(fakes.controller.collector.collect(0))
    loaded = {p.id: p for p in load_problems(fakes.cfg.problems.train, seed)}
    order = [group.problem.id for group in found.groups]
    assert sorted(order) == sorted(loaded) and order != list(loaded)  # shuffled, each row once
    for group, advantages in zip(found.groups, found.advantages, strict=True):
        assert group.problem == loaded[group.problem.id]
        assert group.verdicts == (True, False)
        assert group.traces[0].prefix_length is not None and group.traces[1].prefix_length is None
        assert advantages[0, 0] > 0 > advantages[1, 0]
