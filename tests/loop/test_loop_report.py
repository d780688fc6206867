"""What a run measures and keeps for its report, and the page made of it."""

from dataclasses import replace

import pytest

from pipeline.config import load_config
from pipeline.loop.before_after import Answered
from pipeline.loop.examples import alternating
from pipeline.loop.held_out import identity
from pipeline.loop.report import MOST_STEPS, chosen_pairs, write_report
from pipeline.loop.report_files import Measured, keep_measured, keep_step, kept_measured, kept_steps, kept_views
from pipeline.rewards import Outcome
from pipeline.tracking import TraceView, token_views
from pipeline.tracking.run_report import MOST_PAIRS, MOST_TRACES
from tests.loop.builders import play

HELD_OUT = (
    "problems.held_out=[{kind: tiny, name: chain_sum, split: held_out, size: 20, options: {max_terms: 3}}]",
    "run.report_problems=12",
)
HISTORY = {
    "rollout/accuracy": {0: 0.5, 1: 0.6, 2: 0.8},
    "rollout/tokens_mean": {0: 100.0, 1: 80.0, 2: 60.0},
    "rollout/unknown_rate": {0: 0.0, 1: 0.0, 2: 0.0},
    "ledger/trained": {0: 4.0, 2: 12.0},
}


def view(problem="p", verdict="right", redundant=3, source="sums", version="0"):
    count = 5 + redundant
    outcome = Outcome(count, verdict == "right", 3, 3 + redundant)
    return TraceView(problem, "2", source, verdict, version, token_views(["x"] * count, outcome), problem)


def config(*overrides):
    return load_config(None, ["run.name=mine", *overrides])


def measured(asked="same", version=0, tokens=10.0, views=()):
    answers = {str(i): Answered("sums", float(i % 2), tokens, int(tokens), i % 2, 3, 6) for i in range(12)}
    return Measured(asked, version, answers, list(views))


def test_what_is_kept_comes_back(tmp_path):
    views = [view(), replace(view(), tokens=token_views(["a\u2028"], Outcome(1, True, None, 0), [1.1234567], [-0.5]))]
    keep_measured(tmp_path, "before", measured(views=views))
    back = kept_measured(tmp_path, "before")
    assert back.answers == measured().answers and (back.asked, back.version) == ("same", 0)
    assert back.views[0] == views[0] and back.views[1].tokens[0].reward == 1.12346
    assert kept_measured(tmp_path, "after") is None
    keep_step(tmp_path, 10, [view()])
    keep_step(tmp_path, 2, [view("q")])
    assert [kept_views(path)[0].problem for path in kept_steps(tmp_path)] == ["q", "p"]


def test_items_in_turns_from_each_kind():
    assert alternating(["a1", "a2", "a3", "b1", "c1", "b2"], key=lambda x: x[0]) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_the_engines_answer_held_out_problems_before_and_after(tmp_path):
    async def scene(fakes, ranks):
        for engine in fakes.engines:
            engine.problems |= {p.id: p for p in load(fakes.cfg)}
        await fakes.controller.begin()
        first = await fakes.controller.measure("before")
        asked = len(fakes.asked)
        assert await fakes.controller.measure("before") == first and len(fakes.asked) == asked == 12
        await ranks.run()
        judged = [numbers["judge/calls"] for _, numbers in fakes.tracker.steps]
        await fakes.controller.measure("after")
        return first, judged, fakes

    first, judged, fakes = play(scene, tmp_path, *HELD_OUT, "evaluation.samples=2")
    assert first.startswith("12 held-out problems, version 0: accuracy 0.500")
    before, after = (kept_measured(tmp_path / "run", name) for name in ("before", "after"))
    assert (before.version, after.version) == (0, 3) and before.asked == after.asked == identity(fakes.cfg)
    assert before.answers.keys() == after.answers.keys() and len(before.views) == 12
    assert all(answer.accuracy == 0.5 for answer in before.answers.values())
    assert max(judged) < 60  # calls of the measurement belong to no step
    page = write_report(fakes.cfg, tmp_path / "run", HISTORY)
    assert (tmp_path / "run" / "report.html").read_text() == page
    assert "12 held-out problems, 2 replies each" in page and "version 3" in page


def load(cfg):
    from pipeline.loop.assemble import load_split

    return load_split(cfg, "held_out")


@pytest.mark.parametrize("options", [("problems.held_out=[]",), (*HELD_OUT, "run.report_problems=0")])
def test_nothing_is_asked_where_nothing_is_wanted(tmp_path, options):
    async def scene(fakes, ranks):
        await fakes.controller.begin()
        return await fakes.controller.measure("before"), fakes.asked

    assert play(scene, tmp_path, *options) == (None, [])


def test_another_way_of_asking_has_another_identity():
    asked = {
        identity(config(option))
        for option in ("run.steps=7", "learner.lr=1", "evaluation.temperature=0.5", "run.seed=1", "model.path=other")
    }
    assert len(asked) == 4 and identity(config()) in asked


def test_the_page_has_the_first_and_last_batch_where_nothing_else_was_measured(tmp_path):
    keep_step(tmp_path, 0, [view("one"), view("two")])
    keep_step(tmp_path, 2, [view("two", redundant=0, version="2")])
    page = write_report(config(), tmp_path, HISTORY)
    assert "Too little was measured to tell a change from chance: a reply went from 100.0 to 60.0 tokens" in page
    assert "and a right answer from 200.0 to 75.0 tokens" in page
    assert "averages of the first and of the last batch" in page and page.count("8 → 5 tokens") == 1
    assert "Problems trained <b>12</b>" in page
    nothing = write_report(config(), tmp_path / "report", {})
    assert "Not measured: neither held-out problems nor two batches were measured." in nothing


def test_answers_to_other_questions_are_not_compared(tmp_path):
    keep_measured(tmp_path, "before", measured("one"))
    keep_measured(tmp_path, "after", measured("other", 3))
    assert "averages of the first and of the last batch" in write_report(config(), tmp_path, HISTORY)
    keep_measured(tmp_path, "after", measured("one", 3, tokens=5.0))
    (tmp_path / "published" / "v2").mkdir(parents=True)
    page = write_report(config(), tmp_path, HISTORY)
    assert "from 10.0 to 5.0 tokens" in page and ">v2<" in page and 'class="held-out"' in page


def test_pairs_are_right_both_times_most_redundant_first_and_one_that_was_lost():
    pairs = [(view(str(n), redundant=n), view(str(n), redundant=0)) for n in range(8)]
    pairs += [(view("s", redundant=1, source="search"), view("s", source="search"))]
    lost = (view("lost"), view("lost", verdict="wrong"))
    chosen = chosen_pairs([*pairs, lost, lost, (view("w", verdict="wrong"), view("w"))])
    assert [pair[0].problem for pair in chosen] == ["7", "s", "6", "lost"] and len(chosen) == MOST_PAIRS


def test_traces_come_from_steps_all_over_the_run(tmp_path):
    for step in range(0, 100, 5):
        keep_step(tmp_path, step, [view(f"{step}-{i // 3}", version=str(step)) for i in range(18)])
    page = write_report(config(), tmp_path, {})
    assert page.count('<details class="trace"') == 9 * MOST_STEPS <= MOST_TRACES
    assert 'data-version="0"' in page and 'data-version="95"' in page
