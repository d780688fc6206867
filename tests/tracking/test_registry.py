from types import SimpleNamespace

import pytest

from pipeline.config import UserError
from pipeline.tracking import Registry, Tracker, TrackingError


@pytest.fixture
def tracker(store, request):
    tracker = Tracker(store, "registry", registered_model=request.node.name, pause_s=0.01)
    tracker.start(request.node.name, {})
    return tracker


def register(tracker, version, digest=None, source="s3://bucket/run/v"):
    digest = digest or f"{version:064x}"
    return tracker.register_version(source, version=version, digest=digest, step=version, config_digest="c" * 64)


def test_a_replayed_version_is_registered_once(tracker):
    first, second = register(tracker, 10), register(tracker, 20)
    assert (first.number, second.number) == (1, 2)
    assert register(tracker, 10) == first
    assert register(tracker, 10, digest="f" * 64).number == 3  # replayed, but with other weights
    assert (first.version, first.step, first.uri, first.run_id) == (10, 10, "s3://bucket/run/v", tracker.run_id)


def test_a_snapshot_in_a_folder_keeps_its_place_in_a_tag(tracker, tmp_path):
    found = register(tracker, 1, source=str(tmp_path))
    assert found.uri == str(tmp_path)
    source = tracker._client.get_model_version(found.name, "1").source
    assert source.startswith(f"runs:/{tracker.run_id}/registered/version_1_")


def test_the_champion_leaves_its_place_to_previous(tracker, store):
    assert tracker.served_version() is None
    numbers = [register(tracker, version).number for version in (1, 2, 3)]
    tracker.set_alias("candidate", numbers[0])
    tracker.set_alias("champion", numbers[0])
    assert tracker.registry.aliases() == {"candidate": 1, "champion": 1}
    tracker.set_alias("champion", numbers[1])
    tracker.set_alias("champion", numbers[1])  # a repeated order changes nothing
    assert tracker.registry.aliases() == {"candidate": 1, "champion": 2, "previous": 1}
    tracker.set_alias("champion", tracker.registry.resolve("previous").number)  # a rollback
    assert tracker.registry.aliases() == {"candidate": 1, "champion": 1, "previous": 2}
    assert Registry.open(store, tracker.registry.name).served().version == 1


class Aliases:
    """A client that only keeps aliases; `broken` cannot be set."""

    def __init__(self, broken=(), **named):
        self.named, self.broken, self.log = named, broken, []

    def get_registered_model(self, name):
        return SimpleNamespace(aliases=dict(self.named))

    def set_registered_model_alias(self, name, alias, version):
        self.log.append(alias)
        if alias in self.broken:
            raise OSError("away")
        self.named[alias] = int(version)


@pytest.mark.parametrize(
    "broken,left", [(["champion"], {"champion": 2, "previous": 1}), (["previous"], {"champion": 1, "previous": 1})]
)
def test_an_exchange_that_breaks_never_leaves_the_bad_version_with_both_names(broken, left):
    client = Aliases(broken, champion=2, previous=1)
    with pytest.raises(TrackingError):
        Registry(client, "policy", tries=1).set_alias("champion", 1)
    assert client.named == left


def test_a_champion_that_cannot_be_set_gives_previous_back():
    client = Aliases(["champion"], champion=2, previous=1)
    with pytest.raises(TrackingError, match="set alias champion"):
        Registry(client, "policy", tries=1).set_alias("champion", 3)
    assert client.named == {"champion": 2, "previous": 1} and client.log == ["previous", "champion", "previous"]
    first = Aliases(["champion"], champion=2)
    with pytest.raises(TrackingError):
        Registry(first, "policy", tries=1).set_alias("champion", 3)
    assert first.named == {"champion": 2, "previous": 2}


def test_a_snapshots_versions_over_all_pages_newest_first():
    def entry(number, version, digest):
        own = {"version": str(version), "digest": digest, "step": "0", "config_digest": "c"}
        return SimpleNamespace(name="policy", version=str(number), tags=own, source="/x", run_id="r")

    class Page(list):
        token = None

    first, second = Page([entry(1, 8, "aa"), entry(2, 9, "aa")]), Page([entry(3, 8, "bb")])
    first.token = "next"
    client = SimpleNamespace(
        search_model_versions=lambda text, max_results, page_token: second if page_token else first
    )
    registry = Registry(client, "policy", tries=1)
    assert [one.number for one in registry.of_snapshot(8)] == [3, 1]
    assert [one.number for one in registry.of_snapshot(8, "a")] == [1] and registry.of_snapshot(7) == []


def test_a_version_takes_tags_and_keeps_its_own(tracker):
    number = register(tracker, 4).number
    tracker.tag_version(number, {"gate.decision": "refused", "gate.reason": "x" * 3000})
    tracker.registry.tag(number, {"gate.decision": "promoted"})
    tags = tracker._client.get_model_version(tracker.registry.name, str(number)).tags
    assert tags["gate.decision"] == "promoted" and len(tags["gate.reason"]) == 1000 and tags["version"] == "4"
    with pytest.raises(TrackingError, match="cannot set tag gate.decision"):
        tracker.registry.tag(9, {"gate.decision": "x"})


def test_wrong_names_and_missing_versions_are_named(tracker):
    with pytest.raises(UserError, match="no alias 'champoin'.*did you mean 'champion'"):
        tracker.set_alias("champoin", 1)
    with pytest.raises(TrackingError, match="cannot set alias champion"):
        tracker.set_alias("champion", 7)
    assert tracker.registry.counters["failed_registry_calls"] == 1


def test_a_version_made_elsewhere_is_not_taken_for_ours(tracker):
    tracker._client.create_registered_model(tracker.registry.name)
    tracker._client.create_model_version(tracker.registry.name, "s3://other/place")
    with pytest.raises(TrackingError, match="was not made here"):
        tracker.registry.get(1)


def test_a_registry_that_is_away_is_tried_again_then_reported(tracker, monkeypatch):
    calls = []

    def away(name):
        calls.append(name)
        raise ConnectionError("refused")

    monkeypatch.setattr(tracker._client, "get_registered_model", away)
    with pytest.raises(TrackingError, match="cannot read the aliases.*refused"):
        tracker.served_version()
    assert len(calls) == 3 and tracker.registry.counters["retries"] == 2
