"""A run's report made by hand, for the tests of the page."""

from pipeline.rewards.outcome import Outcome
from pipeline.tracking.run_report_data import BeforeAfter, Estimate, Figure, FigureName, RunReport
from pipeline.tracking.trace_view import TraceView, token_views

ACCURACY, TOKENS, COST, NRP = FigureName
ATTACK = "<script>window.hit=1</script></script><img src=x onerror='window.hit=1'>\u2028&"


def estimate(value, spread):
    return Estimate(value, value - spread, value + spread)


def figure(before, after, change, spread=0.01):
    return Figure(estimate(before, spread), estimate(after, spread), estimate(change, spread))


FIGURES = {
    ACCURACY: figure(0.723, 0.937, 0.214),
    TOKENS: figure(166.2, 61.7, -0.63),
    COST: figure(229.8, 65.9, -0.71),
    NRP: figure(0.345, 1.0, 0.655),
}
CHANGE = BeforeAfter("On 300 problems.", ("0", "8"), FIGURES, estimate(1.52, 0.1), {"sums": FIGURES, "search": {}})
STEPS = range(8)
HISTORY = {
    "rollout/accuracy": {step: 0.7 + 0.02 * step for step in STEPS},
    "rollout/tokens_mean": {step: 160.0 - 10 * step for step in STEPS},
    "rollout.sums/accuracy": {step: 0.5 for step in STEPS},
    "rollout/nrp_share_tokens": {step: 0.3 + 0.05 * step for step in STEPS},
    "curriculum/kappa": {step: 0.75 for step in STEPS},
    "curriculum/easy_share_realised": {step: 0.1 * step for step in STEPS},
}


def view(verdict="right", source="sums", version="0", problem="What is 1 + 1?", count=30, text="tok "):
    outcome = Outcome(count, verdict == "right", 10, count - 5)
    rewards, advantages = [1.1] * 10 + [0.7] * (count - 10), [0.5] * 10 + [-0.25] * (count - 10)
    views = token_views([text] * count, outcome, rewards, advantages)
    return TraceView(problem, "2", source, verdict, version, views, f"{version}/{problem}", "eos")


TRACES = [
    view("right", "sums", "0"),
    view("wrong", "sums", "0"),
    view("right", "search", "0", "Which two?"),
    view("unknown", "search", "4", "Which two?"),
    view("right", "sums", "7", count=12),
]


def report(**changes):
    fields = {
        "name": "demo",
        "facts": [("Model", "tiny"), ("Steps", "8")],
        "change": CHANGE,
        "history": HISTORY,
        "published": (4,),
        "traces": TRACES,
        "traces_from": "Sampled for training.",
        "pairs": [(view(), view(version="8", count=14))],
        "pairs_from": "Held-out problems.",
    }
    return RunReport(**{**fields, **changes})
