"""The publisher's gate over a tracker in memory."""

import pytest

from jobs._publish_gate import PublishGate
from pipeline.config import UserError, load_config
from pipeline.evaluation.tally import Measurement, Tally
from pipeline.tracking import RegisteredVersion


class Tracker:
    def __init__(self, champion=None):
        self.champion, self.tags, self.tables = champion, {}, {}

    def served_version(self):
        return self.champion

    def tag_version(self, number, tags):
        self.tags[number] = tags

    def log_table(self, rows, path):
        self.tables[path] = rows


def registered(version, digest):
    return RegisteredVersion("policy", version, version, digest, 0, "/x", "run", "c")


def plain(version, digest, right=1, tokens=10, asked="q"):
    tally = Tally(1, right, 0, 0, tokens)
    return Measurement(version, digest, asked, {f"p{i}": tally for i in range(60)}).to_plain()


@pytest.fixture
def gate(tmp_path):
    def make(champion=None):
        tracker = Tracker(champion)
        cfg = load_config(None, [f"storage.uri={tmp_path}"])
        gate = PublishGate(cfg, lambda method, *arguments: getattr(tracker, method)(*arguments))
        return gate, tracker

    return make


def test_the_first_version_stands_for_itself_and_later_ones_against_the_champion(gate):
    first, tracker = gate()
    assert first.refusal(5, 8, "eight", plain(8, "eight")) is None
    assert tracker.tags[5]["gate.decision"] == "passed" and tracker.tags[5]["gate.against"] == "none"
    later, tracker = gate(registered(8, "eight"))
    assert later.refusal(6, 16, "sixteen", plain(16, "sixteen", tokens=5)) is None
    assert "tokens ratio 2 [2, 2], allowed 1.25" in later.refusal(7, 24, "t", plain(24, "t", tokens=20))
    assert tracker.tags[7]["gate.decision"] == "refused" and tracker.tags[7]["gate.against"] == "v8-eight"
    assert [row["outcome"] for row in tracker.tables["gate/v24.json"]].count("crossed") == 1
    assert "accuracy 0" in later.refusal(8, 32, "u", plain(32, "u", right=0))


def test_what_was_not_measured_is_refused(gate):
    made, tracker = gate()
    told = "it was not measured: waited 300 s"
    assert made.refusal(5, 8, "eight", {"failed": "waited 300 s"}) == told == tracker.tags[5]["gate.reason"]
    assert "nothing came" in made.refusal(5, 8, "eight", None) and tracker.tables == {}


def test_beside_a_champion_that_is_not_measured_nothing_is_served(gate):
    made, tracker = gate(registered(8, "eight"))
    told = "the champion v8-eight is not measured"
    assert made.refusal(6, 16, "sixteen", plain(16, "sixteen", tokens=5000)) == told
    assert tracker.tags[6]["gate.decision"] == "refused" and tracker.tags[6]["gate.against"] == "v8-eight"
    made.keep(plain(8, "eight"))
    assert made.refusal(7, 24, "t", plain(24, "t")) is None
    tracker.champion = registered(9, "nine")  # promoted by hand meanwhile
    assert "the champion v9-nine is not measured" in made.refusal(8, 32, "u", plain(32, "u"))


def test_another_versions_measurement_is_a_fault(gate):
    with pytest.raises(RuntimeError, match="version 8 came with the measurement of version 9"):
        gate()[0].refusal(5, 8, "eight", plain(9, "nine"))


def test_a_replay_of_the_champion_passes(gate):
    made, tracker = gate(registered(8, "eight"))
    assert made.refusal(5, 8, "eight", None) is None and tracker.tags == {}


def test_a_champion_is_fetched_only_where_nothing_is_known_of_it(gate, monkeypatch):
    made, _ = gate(registered(8, "eight"))
    policy = type("P", (), {"folder": "/kept/v8", "version": 8, "digest": "eight"})
    monkeypatch.setattr("jobs._publish_gate.release", lambda cfg, found: type("R", (), {"policy": policy}))
    assert made.unmeasured_champion("q") == {"folder": "/kept/v8", "version": 8, "digest": "eight"}
    made.keep(plain(8, "eight"))
    assert made.unmeasured_champion("q") is None and made.unmeasured_champion("other") is not None
    assert gate()[0].unmeasured_champion("q") is None


def test_a_gate_without_an_endpoint_is_a_mistake():
    with pytest.raises(UserError, match="publish.gate decides what the endpoint serves"):
        load_config(None, ["publish.gate=on"])
    assert load_config(None, ["publish.gate=on", "publish.endpoint=on"]).publish.gate
    with pytest.raises(UserError, match="gate.problems"):
        load_config(None, ["gate.problems=10"])
