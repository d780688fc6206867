"""A candidate's way to the users and back, over an endpoint in memory: who serves what, in which order."""

import signal
from contextlib import contextmanager

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Gate
from serve.client import SwapRefused, SwapTimeout
from serve.policy import Policy, Wanted
from serve.promotion.check import Check, Decision
from serve.promotion.flow import Promotion, Result
from serve.promotion.way_back import take_back

OLD, NEW = Policy(1, "/old", "1" * 64), Policy(2, "/new", "2" * 64)
LIMITS = Gate(soak_s=5, look_every_s=1, min_canary_requests=10, deadline_s=20, max_silence_s=3)
PASSED = Decision((Check("accuracy", 0.9, None, 0.01),))
REFUSED = Decision((Check("accuracy", 0.0, None, 0.01, crossed=True),))


class World:
    """Replicas that answer `rate` requests each a second, as long as something is sent. `behaviour[mark]` says how."""

    def __init__(self, replicas=2, live=True, **behaviour):
        self.policies = {f"r{i}": OLD for i in range(replicas)}
        self.served = {name: {} for name in self.policies}
        self.behaviour, self.live, self.sending = behaviour, live, False
        self.now, self.log, self.refusing, self.silent, self.breaks = 0.0, [], False, (), {}

    def sleep(self, seconds):
        self.now += seconds
        if "sleep" in self.breaks:
            raise self.breaks["sleep"]
        if self.live or self.sending:
            for name in self.policies:
                self._answer(name, 4)

    def _answer(self, name, count):
        policy = self.policies[name]
        how = {"seconds": 1.0, "tokens": 100, "failed": 0, **self.behaviour.get(f"v{policy.version}", {})}
        entry = self.served[name].setdefault(
            policy.fingerprint, {"requests": 0, "failed": 0, "output_tokens": 0, "squared_tokens": 0, "seconds": []}
        )
        entry["requests"] += count
        entry["failed"] += how["failed"]
        entry["output_tokens"] += count * how["tokens"]
        entry["squared_tokens"] += count * how["tokens"] ** 2
        entry["seconds"] += [how["seconds"]] * (count - how["failed"])

    # the endpoint

    def states(self):
        return {
            name: {
                "version": policy.version,
                "digest": policy.digest,
                "refusals": int(self.refusing and policy == NEW),
                "last_refusal": {"version": 2, "digest": NEW.digest, "reason": "NaN"} if self.refusing else None,
                "served": {
                    mark: {**entry, "seconds": list(entry["seconds"])} for mark, entry in self.served[name].items()
                },
            }
            for name, policy in self.policies.items()
            if name not in self.silent or policy == OLD
        }

    def start_canary(self, policy, replicas):
        self.log.append(f"canary v{policy.version} on {replicas}")
        for name in list(self.policies)[:replicas]:
            self.policies[name] = policy
        if "start" in self.breaks:
            raise self.breaks["start"]

    def end_canary(self):
        self.log.append("end canary")
        if "end" in self.breaks:
            raise self.breaks["end"].pop(0) if len(self.breaks["end"]) > 1 else self.breaks["end"][0]
        self.policies = dict.fromkeys(self.policies, list(self.policies.values())[-1])

    def wanted(self):
        first, last = list(self.policies.values())[0], list(self.policies.values())[-1]
        return Wanted(last) if first == last else Wanted(last, first, 1)

    def swap(self, policy):
        self.log.append(f"swap v{policy.version}")
        self.policies = dict.fromkeys(self.policies, policy)
        if policy == NEW and "swap" in self.breaks:
            raise self.breaks["swap"]
        return 1.5

    # the replay

    @contextmanager
    def running(self):
        self.sending = True
        try:
            yield
        finally:
            self.sending = False

    def whole(self):
        self.log.append("replay")
        self._answer("r0", 20)

    # the registry

    def set_champion(self):
        if "alias" in self.breaks:
            raise self.breaks["alias"]
        self.log.append("champion")

    def run(self, decision=PASSED, limits=LIMITS):
        clock, sleep = lambda: self.now, lambda seconds: self.sleep(seconds)
        self.promotion = Promotion(self, self, limits, self.set_champion, clock=clock, sleep=sleep)
        return self.promotion.run(NEW, OLD, decision)

    @property
    def serves(self):
        return {policy.version for policy in self.policies.values()}


def test_a_good_candidate_reaches_all_and_the_alias_moves_last():
    world = World(3)
    outcome = world.run()
    assert outcome.result is Result.PROMOTED and outcome.seconds == 1.5 and world.serves == {2}
    assert world.log == ["canary v2 on 1", "swap v2", "champion"] and world.now == 5
    assert [check.limit for check in outcome.checks][:2] == ["accuracy", "refusals of the snapshot"]


def test_what_the_gate_refuses_gets_no_traffic():
    world = World()
    outcome = world.run(REFUSED)
    assert outcome.result is Result.REFUSED and outcome.reason == "accuracy 0, allowed 0.01" and world.log == []


@pytest.mark.parametrize(
    "behaviour,limit",
    [
        ({"tokens": 200}, "output tokens ratio 2 [2, 2], allowed 1.25"),
        ({"seconds": 2.0}, "latency ratio p50 2 [2, 2], allowed 1.5"),
        ({"failed": 1}, "error rate 0.25, allowed 0.01"),
    ],
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_bad_candidate_goes_back_by_itself(behaviour, limit, replicas):
    world = World(replicas, v2=behaviour)
    outcome = world.run()
    assert outcome.result is Result.ROLLED_BACK and limit in outcome.reason and world.serves == {1}
    assert "champion" not in world.log and world.log[-1] == ("end canary" if replicas > 1 else "swap v1")


def test_failures_end_it_at_once():
    world = World(v2={"failed": 4})
    world.run()
    assert world.now == 1 and world.serves == {1}


def test_a_replica_that_refuses():
    world = World()
    world.breaks["start"] = SwapRefused("replica r0: NaN")
    outcome = world.run()
    assert (outcome.result, outcome.reason) == (Result.ROLLED_BACK, "replica r0: NaN") and world.serves == {1}
    later = World()
    later.sleep = lambda seconds: (World.sleep(later, seconds), setattr(later, "refusing", True))
    assert "refusals of the snapshot 1" in later.run().reason and later.serves == {1}


def test_a_replica_that_falls_silent():
    world = World()
    world.silent = ("r0",)
    assert "seconds of silence 4, allowed 3" in world.run().reason and world.serves == {1}


AWAY = UserError("no Ray dashboard answers")


@pytest.mark.parametrize("first", [2, 3])  # the look before the soak, or one in it
def test_a_look_that_fails_is_silence_and_no_end(first):
    world, looks = World(), iter(range(1, 99))
    states = world.states

    def look():
        if next(looks) == first:
            raise AWAY
        return states()

    world.states = look
    assert world.run().promoted and world.promotion.failed_looks == 1


def test_looks_that_go_on_failing_take_it_back():
    world, looks = World(), iter(range(1, 99))
    states = world.states

    def look():
        if next(looks) > 3:
            raise AWAY
        return states()

    world.states = look
    outcome = world.run(limits=LIMITS.model_copy(update={"min_canary_requests": 0, "max_silence_s": 8, "soak_s": 4}))
    assert "seconds of silence 9, allowed 8" in outcome.reason and world.serves == {1}  # a soak does not end unseen


def test_the_way_back_is_tried_again():
    world = World(v2={"failed": 4})
    world.breaks["end"] = [AWAY, SwapTimeout("not confirmed")]
    world.end_canary = lambda: World.end_canary(world) if len(world.breaks["end"]) > 1 else end(world)

    def end(world):
        del world.breaks["end"]
        World.end_canary(world)

    outcome = world.run()
    assert outcome.result is Result.ROLLED_BACK and world.serves == {1} and world.log.count("end canary") == 2


def test_a_way_back_that_fails_is_told_with_what_to_do():
    world = World(v2={"failed": 4})
    world.breaks["end"] = [AWAY]
    outcome = world.run()
    assert outcome.result is Result.LEFT_ON and not outcome.promoted and world.now == 21
    assert outcome.reason.startswith("error rate 1, allowed 0.01; v2-22222222 could not be taken back within 20 s")
    assert "no Ray dashboard answers" in outcome.reason and "`python -m jobs.canary end`" in outcome.reason
    alone = World(1, v2={"failed": 4})
    swap = alone.swap

    def stuck(policy):
        if policy == OLD:
            raise AWAY
        return swap(policy)

    alone.swap = stuck
    assert "`python -m jobs.rollback --to NUMBER`" in alone.run().reason


def test_what_another_command_has_put_on_meanwhile_stays():
    world = World()
    other = Policy(3, "/other", "3" * 64)
    world.sleep = lambda seconds: (World.sleep(world, seconds), world.policies.update(r0=other))
    assert "seconds of silence" in world.run().reason and "end canary" not in world.log and world.serves == {1, 3}


def test_a_second_interrupt_waits_until_the_way_back_is_done():
    world, former = World(1), signal.signal(signal.SIGINT, signal.default_int_handler)
    world.breaks["sleep"] = KeyboardInterrupt()
    swap = world.swap

    def interrupted(policy):
        if policy == OLD:
            signal.raise_signal(signal.SIGINT)
        return swap(policy)

    world.swap = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            world.run()
    finally:
        signal.signal(signal.SIGINT, former)
    assert world.log[-1] == "swap v1" and world.serves == {1}


def test_a_way_back_that_was_asked_for_but_not_confirmed_is_confirmed():
    class Slow:
        now, log = Wanted(OLD, NEW, 1), []

        def wanted(self):
            return self.now

        def end_canary(self):
            self.log.append("end")
            self.now = Wanted(OLD)
            if len(self.log) == 1:
                raise SwapTimeout("waiting for r0")

    slow = Slow()
    assert take_back(slow, NEW, OLD, 5, clock=lambda: 0.0, sleep=lambda seconds: None) == ""
    assert slow.log == ["end", "end"]
    assert take_back(slow, NEW, OLD, 5) == "" and len(slow.log) == 2  # nothing was begun


MOMENTS = [("start", 2), *((where, replicas) for where in ("sleep", "swap", "alias") for replicas in (1, 2))]


@pytest.mark.parametrize("where,replicas", MOMENTS)
@pytest.mark.parametrize("ending", [KeyboardInterrupt(), ValueError("a bug")], ids=["ctrl-c", "bug"])
def test_whatever_ends_it_leaves_no_canary_behind(where, replicas, ending):
    world = World(replicas)
    world.breaks[where] = ending
    with pytest.raises(type(ending)):
        world.run()
    assert world.serves == {1} and "champion" not in world.log


@pytest.mark.parametrize("where", ["swap", "alias"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_swap_or_registry_that_fails_is_taken_back_and_told(where, replicas):
    world = World(replicas)
    world.breaks[where] = SwapTimeout("not confirmed within 60 s")
    outcome = world.run()
    assert (outcome.result, outcome.reason) == (Result.ROLLED_BACK, "not confirmed within 60 s") and world.serves == {1}


def test_one_replica_is_compared_with_a_replay_before():
    world = World(1)
    assert world.run().promoted and world.log == ["replay", "swap v2", "champion"]


def test_without_traffic_nothing_is_decided():
    world = World(live=False)
    world.running = lambda: contextmanager(lambda: (yield))()
    outcome = world.run()
    assert "only 0 of the 10 requests wanted" in outcome.reason and world.serves == {1} and world.now == 26


def test_the_replay_is_traffic_enough():
    assert World(live=False).run().promoted


def test_more_canary_replicas_than_there_are_leave_one_as_it_is():
    world = World(3)
    world.run(limits=LIMITS.model_copy(update={"canary_replicas": 5}))
    assert world.log[0] == "canary v2 on 2"


def test_an_endpoint_that_does_not_answer():
    world = World(0)
    assert world.run().reason == "no replica of the endpoint answers" and world.log == []
