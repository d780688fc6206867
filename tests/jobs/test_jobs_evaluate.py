"""The evaluation job over a stand-in engine and a small server: kept samples, resumes, refusals, exit codes."""

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest

from jobs.evaluate import command
from pipeline.config import ROOT, UserError, load_config
from pipeline.evaluation.suites import find_suite, load_suite, spread
from pipeline.loop.remote import RunFailed
from pipeline.problems import load_problems, sample_seed
from pipeline.tracking import check
from tests.evaluation.benchmark_rows import ROWS, write_rows
from tests.evaluation.fake_endpoint import FakeEndpoint, demonstration, serving, written

PRESET = str(ROOT / "infra" / "presets" / "tiny.yaml")
CHUNK = 5
ROOM = "engine.max_model_len=17408"


class FakeEngine:
    """Demonstrations in place of an engine's samples; stops after `most` chunks with `ending`."""

    started, asked, most, ending = [], [], None, KeyboardInterrupt
    made = staticmethod(demonstration)

    def __init__(self, cfg, folder, cpus=None, version=0, digest=""):
        type(self).started.append((folder, version, digest))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def replies(self, cfg, tokenizer, wanted):
        for number, start in enumerate(range(0, len(wanted), CHUNK)):
            if self.most is not None and number >= self.most:
                raise self.ending
            part = wanted[start : start + CHUNK]
            self.asked.extend((problem.id, sample) for problem, sample in part)
            yield [self.made(p, sample_seed(p.id, 0, cfg.run.seed) + s, sample=s) for p, s in reversed(part)]


class FakeTracker:
    """Remembers what a run is given; names are the catalogue's."""

    runs = []

    def __init__(self):
        self.kept = {}

    def start(self, name, params, tags):
        self.runs.append(self)
        self.name, self.params, self.tags = name, params, tags
        return "id"

    def log_step(self, step, metrics):
        self.metrics = check(metrics)[0]

    def log_text(self, text, path):
        return bool(self.kept.setdefault(path, text))

    def log_table(self, rows, path):
        return bool(self.kept.setdefault(path, rows))

    def log_figure(self, figure, path):
        return bool(self.kept.setdefault(path, figure))

    def finish(self, status):
        self.status = status


@pytest.fixture(autouse=True)
def tracked(monkeypatch):
    """The MLflow runs of a test; the real store has a test of its own."""
    kind = type("Tracker", (FakeTracker,), {"runs": [], "from_config": classmethod(lambda cls, cfg: cls())})
    monkeypatch.setattr("pipeline.tracking.Tracker", kind)
    return kind.runs


@pytest.fixture
def engine(monkeypatch):
    kind = type("Engine", (FakeEngine,), {"started": [], "asked": []})
    monkeypatch.setattr("pipeline.loop.evaluate.EvaluationEngine", kind)
    monkeypatch.setattr("jobs._ray.cluster", lambda namespace: nullcontext())
    return kind


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """Runs the job with 12 tiny problems; returns (exit code, report or None)."""

    def run(*argv, name="one", samples=3):
        options = [f"run.name={name}", f"storage.uri={tmp_path}", f"evaluation.samples={samples}"]
        code = command(["--config", PRESET, "--suite", "tiny", "--limit", "12", *argv, *options])
        file = tmp_path / name / "evaluation.json"
        return code, json.loads(file.read_text()) if file.exists() else None

    return run


@cache
def problems():
    return spread(load_suite(find_suite("tiny"), load_config(PRESET, [])), 12)


def figures(report):
    return {key: report[key] for key in ("all", "by_source", "by_difficulty", "identity", "missing", "versions")}


def test_an_evaluation_from_start_to_end(engine, evaluate, capsys, tmp_path):
    code, report = evaluate("--out", str(tmp_path / "copy.json"))
    assert code == 0 and (report["all"]["n"], report["all"]["problems"], report["missing"]) == (36, 12, 0)
    assert 0.4 < report["all"]["accuracy"] < 0.9 and list(report["all"]["pass_at_k"]) == ["1", "2"]
    assert report["all"]["pass_at_k"]["2"]["value"] > report["all"]["accuracy"]
    assert set(report["by_source"]) == {"tiny/chain_sum", "tiny/search", "tiny/compare"}
    assert 0 < report["all"]["nrp_share"] < 1 and list(report["all"]["budgets"]) == ["48", "96", "192", "288", "384"]
    assert json.loads((tmp_path / "copy.json").read_text()) == report
    ((folder, version, digest),) = engine.started
    assert folder == str(ROOT / "infra/models/tiny") and digest == report["identity"]["model"]["digest"] != ""
    text = capsys.readouterr().out
    for part in ("tiny: 12 problems x 3 samples", "tiny/search", "pass@k: 1: ", "unknown verdicts", "search, 6 trials"):
        assert part in text


def test_figures_go_to_mlflow(engine, evaluate, tracked):
    _, report = evaluate()
    (run,) = tracked
    assert (run.name, run.status, run.tags) == ("one", "FINISHED", {"kind": "evaluation", "suite": "tiny"})
    assert run.params["evaluation"]["samples"] == 3
    assert run.metrics["eval/accuracy"] == report["all"]["accuracy"]
    assert run.metrics["eval.tiny_search/tokens_mean"] == report["by_source"]["tiny/search"]["tokens_mean"]
    assert json.loads(run.kept["evaluation.json"]) == report
    rows = run.kept["tables/evaluation.json"]
    assert rows[0]["part"] == "all" and list(rows[0]["accuracy_interval"]) == report["all"]["accuracy_interval"]
    assert {row["name"] for row in rows if row["part"] == "source"} == set(report["by_source"])
    cut, bars = run.kept["figures/evaluation.png"].axes
    assert list(cut.lines[0].get_xdata()) == [48, 96, 192, 288, 384]
    assert len(bars.patches) == len(report["by_difficulty"])


def test_an_evaluation_stands_below_the_run_that_trained_the_weights(engine, evaluate, tracked, monkeypatch):
    import pipeline.evaluation.model as models

    known = models.open_model
    monkeypatch.setattr(models, "open_model", lambda *args: replace(known(*args), run_id="parent"))
    evaluate()
    assert tracked[0].tags["mlflow.parentRunId"] == "parent"


@pytest.mark.parametrize("most", [0, 1, 4])
def test_an_interrupted_evaluation_goes_on_and_reports_the_same(engine, evaluate, tmp_path, most, capsys):
    _, whole = evaluate(name="whole")
    engine.asked.clear()
    engine.most = most
    assert evaluate()[0] == 130
    first = list(engine.asked)
    lines = (tmp_path / "one" / "samples.jsonl").read_text(encoding="utf-8").split("\n")
    assert len(lines) == 1 + len(first) + 1 and len(first) == most * CHUNK
    engine.most = None
    code, report = evaluate()
    assert code == 0 and figures(report) == figures(whole)
    assert sorted(engine.asked) == sorted({(p.id, s) for p in problems() for s in range(3)})  # each once
    assert f"36 samples, {most * CHUNK} of them there already" in capsys.readouterr().out


def test_a_torn_line_is_sampled_anew_and_told(engine, evaluate, tmp_path, capsys):
    _, whole = evaluate()
    file = tmp_path / "one" / "samples.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    engine.asked.clear()
    code, report = evaluate()
    assert code == 0 and len(engine.asked) == 1 and report["torn_lines"] == 1
    assert figures(report) == figures(whole)
    assert "1 line of an earlier call was torn" in capsys.readouterr().out


def test_a_second_run_starts_nothing_and_reports_the_same(engine, evaluate):
    first = evaluate()
    assert evaluate()[1] | {"requests": 36} == first[1] and len(engine.started) == 1


def test_more_samples_are_added_to_those_there(engine, evaluate):
    evaluate(samples=2)
    engine.asked.clear()
    _, report = evaluate(samples=4)
    assert {sample for _, sample in engine.asked} == {2, 3} and report["all"]["n"] == 48
    assert list(report["all"]["pass_at_k"]) == ["1", "2", "4"]
    assert evaluate(samples=2)[1]["all"]["n"] == 24  # and fewer are read without forgetting the others


@pytest.mark.parametrize(
    "change,named",
    [
        (["evaluation.temperature=0.5"], "sampling.temperature is 1.0, now it is 0.5"),
        (["evaluation.max_new_tokens=200"], "sampling.max_new_tokens is 384, now it is 200"),
        (["run.seed=4"], "sampling.seed|suite.digest"),
        (["--limit", "11"], "suite.digest"),
        (["judge.threshold=0.5"], "scoring.judge.threshold is 0.85, now it is 0.5"),
        (["engine.dtype=bfloat16"], "model.dtype is float32, now it is bfloat16"),
    ],
)
def test_a_resume_with_another_identity_is_refused(engine, evaluate, capsys, change, named, tmp_path):
    evaluate()
    before = (tmp_path / "one" / "samples.jsonl").read_bytes()
    code, _ = evaluate(*change)
    error = capsys.readouterr().err
    assert code == 2 and "holds samples of another evaluation" in error and "choose another run.name" in error
    assert any(part in error for part in named.split("|"))
    assert (tmp_path / "one" / "samples.jsonl").read_bytes() == before and len(engine.started) == 1


def test_another_model_is_another_identity(engine, evaluate, capsys, tmp_path):
    import shutil

    evaluate()
    shutil.copytree(ROOT / "infra/models/tiny", tmp_path / "model")
    (tmp_path / "model" / "manifest.json").unlink()
    assert evaluate("--model", str(tmp_path / "model"))[0] == 2
    assert "its model.digest is" in capsys.readouterr().err


def test_deadlines_end_with_a_sentence_and_the_way_on(engine, evaluate, capsys):
    engine.most, engine.ending = 1, RunFailed("waited 300 s for the evaluation engine's next reply")
    assert evaluate()[0] == 1
    assert "error: waited 300 s for the evaluation engine's next reply; run again with run.name=one" in (
        capsys.readouterr().err
    )


def test_a_mistake_the_engine_finds_is_one_sentence(engine, evaluate, capsys):
    engine.most, engine.ending = 0, UserError("the engine cannot run it with these options: too long")
    assert evaluate()[0] == 2
    assert capsys.readouterr().err.endswith("error: the engine cannot run it with these options: too long\n")


def test_aes_against_a_base(engine, evaluate, capsys, tmp_path):
    evaluate(name="base")
    base = str(tmp_path / "base" / "evaluation.json")
    code, report = evaluate("--base", base)
    assert code == 0 and report["all"]["aes"] == 0 and "AES against the base: 0.000" in capsys.readouterr().out
    assert evaluate("--base", base, "--limit", "6", name="other")[0] == 2
    assert "--base" in capsys.readouterr().err and len(engine.started) == 2  # told before anything is sampled
    assert evaluate("--base", str(tmp_path / "none.json"), name="other")[0] == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv,reason",
    [
        (["--suite", "aime2"], "no suite 'aime2'"),
        (["--suite", "tiny", "--split", "train"], "--split chooses from the config's problems"),
        (["--suite-file", "x.jsonl"], "say which with --suite"),
        (["--limit", "0"], "--limit takes a whole number from 1 to 1000000000"),
        (["--limit", "²"], "--limit takes a whole number"),
        (["--suite", "math500", "--suite-file", "none.jsonl"], "no such file"),
        (["--suite", "math500", "--suite-file", PRESET], "neither .jsonl nor .parquet"),
        (["--suite", "tiny", "--suite-file", PRESET], "is generated and takes no --suite-file"),
        (["--suite", "math500"], "replies of up to 16384 tokens leave no room for a prompt in engine.max_model_len"),
        (["evaluation.max_new_tokens=100000"], "replies of up to 100000 tokens leave no room"),
        (["--model-id", "x"], "--model-id names a model of an endpoint"),
        (["--base", "none.json"], "--base none.json cannot be read"),
        (["--out", "no/such/folder/x.json"], "there is no such folder"),
        (["problems.held_out.0.name=chain_sums"], "did you mean 'chain_sum'"),
        (["judge.path=/none"], "judge.path: no judge at /none"),
        (["judge.digest=abc"], "judge.digest is abc but the judge in"),
        (["problems.held_out=[]"], "no problems.held_out"),
        (["evaluation.temperature=0", "evaluation.samples=2"], "all samples of a problem the same"),
        (["--model", "models:/policy"], "neither models:/NAME@ALIAS"),
        (["--model", "none"], "none"),
    ],
)
def test_mistakes_are_told_before_anything_starts(engine, argv, reason, tmp_path, capsys):
    assert command(["--config", PRESET, *argv, f"storage.uri={tmp_path}", "run.name=x"]) == 2
    error = capsys.readouterr().err
    assert reason in error and error.startswith("error: ") and error.count("\n") == 1 and not engine.started
    assert not (tmp_path / "x").exists()  # nothing is left of a refused evaluation
    if argv != ["--model", "none"]:  # a dry run may be made before the model is there
        assert command(["--config", PRESET, *argv, "--dry-run"]) == 2 and reason in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv,parts",
    [
        (["--split", "train"], ["8192 problems of problems.train, x 1 samples", "up to 384 new tokens"]),
        ([], ["300 problems of problems.held_out", "one rollout engine with"]),
        (["--suite", "tiny", "--limit", "7"], ["the problems of tiny, from the tiny world, 7 of them at most"]),
        (
            ["--suite", "aime24", ROOM],
            ["HuggingFaceH4/aime_2024, x 128 samples", "temperature 0.6, top_p 0.95, up to 16384"],
        ),
        (["--suite", "math500", "evaluation.samples=4", ROOM], ["x 4 samples"]),
        (["--suite", "math500", "evaluation.max_new_tokens=500", ROOM], ["x 16 samples", "up to 500 new tokens"]),
        (["--model", "http://host:80"], ["on the endpoint http://host:80"]),
    ],
)
def test_a_dry_run_says_what_would_be_measured(argv, parts, capsys):
    assert command(["--config", PRESET, "--dry-run", *argv]) == 0
    text = capsys.readouterr().out
    for part in parts:
        assert part in text


def test_a_benchmark_brings_its_protocol_and_says_where_it_was_left(engine, tmp_path, capsys):
    rows = [{**row, "answer": str(number)} for number, row in enumerate(ROWS["math500"]())]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    engine.made = lambda self, problem, seed, sample: written(
        problem, f"Wait</think>\nThe answer is \\boxed{{{problem.gold}}}.", sample=sample
    )
    argv = ["--config", PRESET, "--suite", "math500", "--suite-file", file, "evaluation.samples=2", "run.name=m", ROOM]
    assert command([*argv, f"storage.uri={tmp_path}"]) == 0
    report = json.loads((tmp_path / "m" / "evaluation.json").read_text())
    assert report["identity"]["sampling"] == {"temperature": 0.6, "top_p": 0.95, "max_new_tokens": 16384, "seed": 0}
    assert report["protocol_deviations"] == ["samples 2 (protocol: 16)", "problems 6 (protocol: 500)"]
    assert "not the suite's protocol: samples 2 (protocol: 16)" in capsys.readouterr().out
    assert report["all"]["accuracy"] == 1 and list(report["all"]["budgets"]) == ["2048", "4096", "8192", "16384"]
    assert list(report["by_difficulty"]) == [f"level {n}" for n in range(1, 6)]


def through(endpoint, evaluate, *argv, **options):
    with serving(endpoint) as url:
        return evaluate("--model", url, *argv, **options)


def test_an_endpoint_from_start_to_end(evaluate, capsys):
    endpoint = FakeEndpoint(problems())
    code, report = through(endpoint, evaluate)
    assert code == 0 and len(endpoint.asked) == 36 == report["requests"] and report["versions"] == [3]
    assert report["identity"]["model"] == {"endpoint_model": "policy", "weights": "v3-abc"}
    assert {body["max_tokens"] for body in endpoint.asked} == {384} and report["other_weights"] == {}
    again = through(endpoint, evaluate)
    assert again[0] == 0 and figures(again[1]) == figures(report) and len(endpoint.asked) == 36


def test_failures_in_the_middle_are_counted_and_asked_again_later(evaluate, capsys):
    endpoint = FakeEndpoint(problems(), fails=range(3, 8))
    code, report = through(endpoint, evaluate)
    assert code == 1 and len(report["failures"]) == 5 == report["missing"] and report["all"]["n"] == 31
    text = capsys.readouterr().out
    assert "5 of 36 requests failed: InternalServerError" in text and "run.name=one goes on with them" in text
    code, report = through(endpoint, evaluate)
    assert code == 0 and report["missing"] == 0 and len(endpoint.asked) == 41
    _, whole = through(FakeEndpoint(problems()), evaluate, name="whole")
    assert figures(report) == figures(whole)


def test_replies_of_other_weights_are_counted_and_reported(evaluate, capsys):
    endpoint = FakeEndpoint(problems(), later=(30, "v4-def"))
    code, report = through(endpoint, evaluate, "evaluation.concurrency=1")
    assert code == 0 and report["other_weights"] == {"v4-def": 6} and report["versions"] == [3, 4]
    assert "other weights than v3-abc made replies among these: {'v4-def': 6}" in capsys.readouterr().out


def test_an_endpoint_that_now_has_other_weights_is_another_identity(evaluate, capsys):
    through(FakeEndpoint(problems(), fails=range(3, 8)), evaluate)
    code, _ = through(FakeEndpoint(problems(), mark="v9-xyz"), evaluate)
    assert code == 2 and "its model.weights is v3-abc, now it is v9-xyz" in capsys.readouterr().err


def test_other_sampling_is_told_before_anything_is_sent(evaluate, capsys):
    through(FakeEndpoint(problems(), fails=[0]), evaluate)
    other = FakeEndpoint(problems())
    assert through(other, evaluate, "evaluation.top_p=0.5")[0] == 2 and other.asked == []
    assert "sampling.top_p is 1.0, now it is 0.5" in capsys.readouterr().err


def test_nothing_is_sent_to_an_endpoint_without_the_model(evaluate, capsys):
    endpoint = FakeEndpoint(problems())
    assert through(endpoint, evaluate, "--model-id", "other")[0] == 2 and endpoint.asked == []
    assert "serves no model 'other'; known: policy" in capsys.readouterr().err


def test_an_endpoint_that_is_not_there_is_one_sentence(evaluate, capsys, tmp_path):
    with serving(FakeEndpoint([])) as url:
        pass
    assert evaluate("--model", url)[0] == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no endpoint answers at ") and error.count("\n") == 1
    assert not (tmp_path / "one").exists()


def test_all_requests_failing_leaves_no_identity_and_exit_1(evaluate):
    endpoint = FakeEndpoint(problems(), fails=range(100))
    code, report = through(endpoint, evaluate)
    assert code == 1 and report["all"]["n"] == 0 and report["missing"] == 36 and report["all"]["accuracy"] is None


def test_the_train_split_is_the_train_split(engine, tmp_path):
    argv = ["--config", PRESET, "--split", "train", "--limit", "4", "run.name=t", f"storage.uri={tmp_path}"]
    assert command([*argv, "problems.train.0.size=10", "problems.train.1.size=10"]) == 0
    cfg = load_config(PRESET, ["problems.train.0.size=10", "problems.train.1.size=10"])
    trained = {problem.id for problem in load_problems(cfg.problems.train, 0)}
    assert {problem for problem, _ in engine.asked} <= trained and len(engine.asked) == 4


def test_help_and_mistakes_load_nothing_heavy():
    code = (
        "import sys; from jobs.evaluate import command; code = command(['--suite', 'nosuch']); "
        "print(code, *{'torch', 'ray', 'vllm', 'openai', 'transformers', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout.strip() == "2", done.stdout + done.stderr
