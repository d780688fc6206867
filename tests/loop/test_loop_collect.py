"""One step's batch: rounds of sampling, what is asked of the engines, and where every issue ends up."""

import asyncio
import json

import pytest

from pipeline.config import Source, UserError
from pipeline.curriculum import BatchNotFilled
from pipeline.loop.collect import Prompts, regroup
from pipeline.problems import Problem, load_problems, sample_seed
from pipeline.traces import Group
from pipeline.tracking import check
from tests.loop.builders import TOKENIZER, FakeEngine, Fakes, scored, trace

PROBLEM = Problem("p", "What is 4 + 3?", "7", "tiny/chain_sum")


def collect(fakes, step=0):
    return asyncio.run(fakes.controller.collector.collect(step))


def by_number(*kinds):
    """Verdicts by the order in which issues are asked for: `kinds` are strings such as "+-", used round robin."""
    seen = {}

    def verdicts(request):
        number = seen.setdefault(request.issue_id, len(seen))
        return [sign == "+" for sign in kinds[number % len(kinds)]]

    return verdicts


def test_prompt_ends_where_the_model_begins_to_think():
    ids = Prompts(TOKENIZER, "", 100).ids(PROBLEM)
    assert TOKENIZER.decode(ids) == "<|user|>What is 4 + 3?<|assistant|><think>\n"
    assert TOKENIZER.decode(Prompts(TOKENIZER, "Let me", 100).ids(PROBLEM)).startswith(
        "<|user|>What is 4 + 3?\nLet me<"
    )


def test_all_shapes_of_a_data_set_give_the_same_chat_text(tmp_path):
    """Text, messages, nested answers, another order and further columns."""
    user, system = {"role": "user", "content": "What is 4 + 3?"}, {"role": "system", "content": "Be short."}
    shapes = [
        ({"prompt": user["content"], "gold": "7"}, {}),
        ({"answer": "7", "question": user["content"]}, {"prompt": "question", "gold": "answer"}),
        ({"prompt": [system, user], "reward_model": {"ground_truth": "7"}}, {"gold": "reward_model.ground_truth"}),
        ({"extra": None, "gold": 7, "solution": "so \\boxed{7}", "prompt": user["content"]}, {}),
    ]
    texts = set()
    for number, (row, columns) in enumerate(shapes):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(json.dumps(row).replace("4", n) + "\n" for n in "456"))
        problems = load_problems([Source(kind="jsonl", path=str(file), columns=columns)], 0)
        texts.add(tuple(TOKENIZER.decode(Prompts(TOKENIZER, "", 100).ids(problem)) for problem in problems))
    assert texts == {tuple(f"<|user|>What is {n} + 3?<|assistant|><think>\n" for n in "456")}


def test_prompts_that_leave_no_room_are_left_out():
    length = len(Prompts(TOKENIZER, "", 1).ids(PROBLEM))
    longer = Problem("q", "What is 4 + 3 + 2?", "9", "tiny/chain_sum")
    assert Prompts(TOKENIZER, "", length).fitting([PROBLEM, longer]) == [PROBLEM]
    with pytest.raises(UserError, match=f"no training prompt fits into {length - 1} tokens"):
        Prompts(TOKENIZER, "", length - 1).fitting([PROBLEM, longer])


def test_regroup_undoes_the_flattening():
    groups = [Group("0/p", "p", (trace(), trace())), Group("0/q", "q", (trace(),))]
    flat = [scored(True), scored(False), scored(None)]
    problems = {"p": PROBLEM, "q": Problem("q", "", "", "")}
    found = regroup(groups, flat, problems)
    assert [(g.issue_id, g.problem.id, g.verdicts) for g in found] == [
        ("0/p", "p", (True, False)),
        ("0/q", "q", (None,)),
    ]


def test_one_round_where_every_group_is_mixed(tmp_path):
    fakes = Fakes(tmp_path)
    found = collect(fakes)
    assert len(fakes.asked) == 4 and len(found.groups) == 4 and found.metrics["sampling_rounds"] == 1
    assert found.metrics["accuracy"] == 0.5 and found.metrics["detector_misses"] == 0
    assert found.metrics["staleness_violations"] == 0
    assert all(t.prefix_length for g in found.groups for t in g.traces if t.correct)
    assert all(t.prefix_length is None for g in found.groups for t in g.traces if not t.correct)
    assert 0 < found.nrp_ratio < 1 and found.easy_share == 0
    assert len(found.streams) == 8
    check(found.metrics)
    assert fakes.controller.collector.ledger.counts() == {"issued": 0, "scored": 4, "dropped": 0, "trained": 0}


def test_what_an_engine_is_asked(tmp_path):
    fakes = Fakes(tmp_path, "run.seed=3")
    collect(fakes)
    requests = [r for engine in fakes.engines for r in engine.asked]
    for request in requests:
        assert request.issue_id == f"0/{request.problem_id}" and request.n == 2
        assert request.seed == sample_seed(request.problem_id, 0, 3)
        assert (request.temperature, request.top_p, request.max_new_tokens) == (1.0, 1.0, 320)
        assert TOKENIZER.decode(list(request.prompt_ids)).endswith("<think>\n")
    assert [len(engine.asked) for engine in fakes.engines] == [2, 2]


def test_further_rounds_ask_for_a_little_more_than_is_missing(tmp_path):
    fakes = Fakes(tmp_path, verdicts=by_number("+-", "--", "--", "--"))
    found = collect(fakes)
    # one in four is mixed: 4 wanted, 4 asked; 3 missing, ceil(3.75) asked; 2 missing, 3 asked; 1 missing, 2 asked
    assert len(found.groups) == 4 and found.metrics["sampling_rounds"] == 4
    assert len(fakes.asked) == 4 + 4 + 3 + 2
    ledger = fakes.controller.collector.ledger
    assert ledger.counts() == {"issued": 0, "scored": 4, "dropped": 9, "trained": 0}
    assert ledger.dropped_by_reason() == {"all_wrong": 9} and found.metrics["groups_dropped_all_wrong"] == 9
    assert {g.issue_id for g in found.groups} == set(ledger.unfinished())


def test_easy_groups_join_at_kappa_and_the_rest_is_dropped_with_its_reason(tmp_path):
    options = ["curriculum.rule=constant", "curriculum.kappa_start=0.25"]
    fakes = Fakes(tmp_path, *options, verdicts=by_number("++", "++", "+-", "+-"))
    found = collect(fakes)
    assert found.metrics["easy_share_wanted"] == found.metrics["easy_share_realised"] == 0.25
    assert found.metrics["sigma_l"] >= 0
    dropped = fakes.controller.collector.ledger.dropped_by_reason()
    assert dropped["easy_surplus"] == found.metrics["groups_dropped_easy_surplus"] > 0


def test_a_batch_that_cannot_be_filled(tmp_path):
    fakes = Fakes(tmp_path, "curriculum.max_rounds=2", verdicts=by_number("--"))
    with pytest.raises(BatchNotFilled, match="only 0 of 4 groups .* after 2 rounds"):
        collect(fakes)
    assert fakes.controller.collector.ledger.counts()["scored"] == len(fakes.asked) == 4 + 5


TEN = ["problems.train.0.size=10", "rollout.group_size=4", "rollout.prompts_per_step=4", "curriculum.max_rounds=3"]


def test_ten_prompts_that_are_never_right(tmp_path):
    fakes = Fakes(tmp_path, *TEN, verdicts=by_number("----"))
    with pytest.raises(BatchNotFilled, match=r"only 0 of 4 groups .* after 3 rounds .*14 all_wrong"):
        collect(fakes)


def test_one_prompt_in_ten_that_is_sometimes_right(tmp_path):
    mixed = load_problems(Fakes(tmp_path, *TEN).cfg.problems.train, 0)[0].id

    def verdicts(request):
        return [request.problem_id == mixed and i == 0 for i in range(request.n)]

    with pytest.raises(BatchNotFilled, match=r"only [1-3] of 4 groups .* after 3 rounds"):
        collect(Fakes(tmp_path, *TEN, verdicts=verdicts))
    found = collect(Fakes(tmp_path, *TEN, "curriculum.min_batch_share=0.25", verdicts=verdicts))
    count = len(found.groups)
    assert 1 <= count < 4 and {group.problem.id for group in found.groups} == {mixed}
    assert found.streams.tokens == sum(t.length for g in found.groups for t in g.traces)  # what the loss divides by


def test_a_limit_that_is_nothing_is_refused_and_none_is_the_default(tmp_path):
    with pytest.raises(UserError, match="curriculum.max_rounds is 0; it must be a whole number above 0"):
        Fakes(tmp_path, *TEN[:-1], "curriculum.max_rounds=0")
    fakes = Fakes(tmp_path, *TEN[:-1], verdicts=by_number("----"))
    with pytest.raises(BatchNotFilled, match="after 10 rounds"):
        collect(fakes)


def test_a_schedule_counts_training_steps_not_rounds_of_sampling(tmp_path):
    options = ["curriculum.rule=linear", "curriculum.schedule_steps=4"]
    fakes = Fakes(tmp_path, *options, verdicts=by_number("+-", "--", "--"))
    collector = fakes.controller.collector
    for step, kappa in enumerate((0.2, 0.3, 0.4)):
        found = collect(fakes, step)
        assert found.metrics["sampling_rounds"] > 1
        assert found.metrics["kappa"] == collector.rule.kappa == pytest.approx(kappa)
        collector.trained(found)


def test_kappa_follows_the_ratio_whatever_the_reward_needs(tmp_path):
    found = collect(Fakes(tmp_path, "reward.name=grpo", "curriculum.rule=feedback_clipped"))
    assert found.nrp_ratio is not None and found.metrics["judge_calls"] > 0


@pytest.mark.parametrize("rule", ["off", "constant"])
def test_a_reward_without_prefixes_does_not_ask_the_judge(tmp_path, recwarn, rule):
    fakes = Fakes(tmp_path, "reward.name=grpo", f"curriculum.rule={rule}")
    fakes.controller.collector.judge = None
    found = collect(fakes)
    assert found.nrp_ratio is None and found.metrics["seconds_judge"] == 0
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


def test_trained_moves_ledger_and_curriculum(tmp_path):
    fakes = Fakes(tmp_path)
    collector = fakes.controller.collector
    found = collect(fakes)
    collector.trained(found)
    assert collector.ledger.counts()["trained"] == 4 and collector.rule.nrp_ratio == found.nrp_ratio


def test_same_seed_same_batch(tmp_path):
    one, two, other = (Fakes(tmp_path, f"run.seed={seed}") for seed in (1, 1, 2))
    digests = [collect(fakes).streams.digest() for fakes in (one, two, other)]
    assert digests[0] == digests[1] != digests[2]


def test_too_few_problems_for_a_step(tmp_path):
    with pytest.raises(UserError, match="3 training problems do not fill one step"):
        Fakes(tmp_path, "problems.train.0.size=3")


def test_shared_held_out_prompts_are_warned_of(tmp_path, caplog):
    source = "{kind: tiny, name: chain_sum, split: train, size: 24, options: {max_terms: 3}}"
    Fakes(tmp_path, f"problems.held_out=[{source}]")
    assert "24 of 24 held-out prompts are also trained on" in caplog.text


def test_text_that_the_model_cannot_read_is_warned_of(tmp_path, caplog):
    Fakes(
        tmp_path, "reward.name=l1_max", "reward.options={shortest: 10}", "problems.prompt_suffix='Let me check, please'"
    )
    suffix, note = (record.getMessage() for record in caplog.records if "does not know" in record.getMessage())
    assert "problems.prompt_suffix" in suffix and suffix.endswith("does not know: ' please'")
    assert "what reward 'l1_max' adds to a prompt" in note and "'Think'" in note and "' tokens'" in note
    caplog.clear()
    Fakes(tmp_path, "problems.prompt_suffix='Let me check.'")
    assert not caplog.records


def test_fake_engine_is_deterministic():
    problem = Problem("p", "What is 4 + 3?", "7", "tiny/chain_sum", {"family": "chain_sum", "expression": "4 + 3"})
    engine = FakeEngine([problem], by_number("+-"))
    request = type(
        "Request", (), dict(issue_id="0/p", problem_id="p", prompt_ids=(1,), n=2, seed=5, max_new_tokens=320)
    )
    assert asyncio.run(engine.generate([request])) == asyncio.run(engine.generate([request]))
