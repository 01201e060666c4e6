"""The plan for one endpoint: what starts, what is promoted, what fails, what stops, and in which order."""

from dataclasses import replace

import pytest

from steelyard.control.plan import (
    BACKOFF_LIMIT_S,
    HEALTHY_AFTER_S,
    RELEASE_LIMIT_S,
    STARTS_AT_ONCE,
    UPDATE_RETRIES,
    plan,
)
from steelyard.control.states import (
    Attempts,
    Config,
    Deployment,
    Desired,
    Drain,
    Entity,
    FailUpdate,
    Forget,
    Kill,
    Memory,
    Phase,
    Promote,
    Replica,
    Start,
    Terminate,
)

A = Entity("ka", "a")
B = Entity("kb", "b")
V1 = Config(1, (A,))
V2 = Config(2, (B,))


def decide(desired, replicas=(), memory=None, now_s=100.0, start_timeout_s=60.0):
    if memory is None:
        memory = Memory(desired.pending.version if desired.pending else None)
    return plan(desired, replicas, memory, start_timeout_s=start_timeout_s, now_s=now_s)


def ready(name, key="ka", since_s=0.0, **more):
    return Replica(name, key, Phase.READY, since_s, max_concurrency=more.pop("max_concurrency", 1), **more)


def of_kind(outcome, kind):
    return [action for action in outcome.actions if isinstance(action, kind)]


def test_first_config_starts_one_replica():
    outcome = decide(Desired(pending=V1))
    assert [action.entity for action in outcome.actions] == [A]
    assert outcome.pending["a"].deployment is Deployment.CREATING


def test_starting_replica_is_not_started_twice():
    assert decide(Desired(pending=V1), [Replica("r", "ka", Phase.STARTING, 90.0)]).actions == ()


def test_promoted_when_all_its_replicas_are_ready():
    assert of_kind(decide(Desired(pending=V1), [ready("r")]), Promote) == [Promote(1, "all its replicas are ready")]


def test_not_promoted_while_one_entity_is_not_ready():
    both = Config(2, (A, B))
    outcome = decide(Desired(active=V1, pending=both), [ready("r"), Replica("s", "kb", Phase.STARTING, 90.0)])
    assert outcome.actions == ()


def test_old_replica_serves_until_the_new_config_is_promoted():
    old, new = ready("old", served=True), ready("new", "kb")
    before = decide(Desired(active=V1, pending=V2), [old, new])
    assert not of_kind(before, Drain)
    after = decide(Desired(active=V2), [old, new])
    assert [action.replica_id for action in of_kind(after, Drain)] == ["old"]


def test_unchanged_entity_keeps_its_replicas_across_an_update():
    outcome = decide(
        Desired(active=V1, pending=Config(2, (replace(A, wanted_concurrency=1),))), [ready("r", served=True)]
    )
    assert outcome.actions == (Promote(2, "all its replicas are ready"),)


def test_replica_that_says_why_it_failed_fails_the_update_at_once():
    dead = Replica("n", "kb", Phase.DEAD, 99.0, failure="no weights")
    outcome = decide(Desired(active=V1, pending=V2), [ready("old", served=True), dead])
    assert of_kind(outcome, FailUpdate) == [FailUpdate(2, "b: no weights")]
    assert not of_kind(outcome, Start)
    assert not of_kind(outcome, Drain)
    assert outcome.active["a"].deployment is Deployment.READY


def test_failed_update_stops_what_it_had_started():
    config = Config(2, (A, B))
    dead = Replica("n", "kb", Phase.DEAD, 99.0, failure="no weights")
    extra = ready("x", "kb", since_s=1.0)
    outcome = decide(Desired(active=V1, pending=config), [ready("old", served=True), extra, dead])
    assert [action.replica_id for action in of_kind(outcome, Terminate)] == ["x"]


def test_death_without_a_reason_is_tried_again_then_fails_the_update():
    memory, now_s, starts = Memory(2), 100.0, 0
    for _ in range(UPDATE_RETRIES):
        outcome = decide(
            Desired(pending=V2), [Replica("n", "kb", Phase.DEAD, now_s, death="exited with status 1")], memory, now_s
        )
        assert not of_kind(outcome, FailUpdate)
        memory, now_s = outcome.memory, outcome.memory.attempts["kb"].not_before_s
        starts += len(of_kind(decide(Desired(pending=V2), [], memory, now_s), Start))
    assert starts == UPDATE_RETRIES
    last = decide(
        Desired(pending=V2), [Replica("n", "kb", Phase.DEAD, now_s, death="exited with status 1")], memory, now_s
    )
    assert of_kind(last, FailUpdate) == [FailUpdate(2, "b: exited with status 1")]


def test_starts_that_were_refused_too_often_fail_the_update():
    refused = Attempts(deaths=UPDATE_RETRIES + 1, message="could not be started (No space left on device)")
    outcome = decide(Desired(active=V1, pending=V2), [ready("r")], Memory(2, {"kb": refused}))
    (failed,) = of_kind(outcome, FailUpdate)
    assert failed.message == "b: could not be started (No space left on device)"


def test_replica_that_is_not_ready_in_time_fails_the_update():
    outcome = decide(Desired(pending=V1), [Replica("n", "ka", Phase.STARTING, 30.0, detail="loading")])
    assert outcome.actions == (
        Terminate("n", "not ready within 60 s (last seen loading)"),
        FailUpdate(1, "a: not ready within 60 s (last seen loading)"),
    )


def test_dead_replica_of_the_active_config_is_replaced_after_a_short_wait():
    first = decide(Desired(active=V1), [Replica("n", "ka", Phase.DEAD, 99.0, before=Phase.READY, death="was killed")])
    assert first.actions == (Forget("n", "was killed", False),)
    assert first.active["a"].deployment is Deployment.RECOVERING
    assert first.wake_at_s == pytest.approx(100.2)
    assert of_kind(decide(Desired(active=V1), [], first.memory, first.wake_at_s), Start)


def test_waits_grow_to_a_limit_and_requests_are_no_longer_held():
    memory, now_s, waits = Memory(), 100.0, []
    for _ in range(12):
        outcome = decide(Desired(active=V1), [Replica("n", "ka", Phase.DEAD, now_s, death="died")], memory, now_s)
        memory, due_s = outcome.memory, outcome.memory.attempts["ka"].not_before_s
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(BACKOFF_LIMIT_S)
    assert outcome.active["a"].deployment is Deployment.FAILED


def test_deaths_are_forgiven_after_a_healthy_while():
    memory = Memory(None, {"ka": Attempts(5, 50.0, last_death_s=100.0)})
    assert decide(Desired(active=V1), [ready("r")], memory, 100.0 + HEALTHY_AFTER_S - 1).memory.attempts
    assert not decide(Desired(active=V1), [ready("r")], memory, 100.0 + HEALTHY_AFTER_S).memory.attempts


def test_all_replicas_dying_at_once_count_as_one_mishap():
    dead = [Replica(name, "ka", Phase.DEAD, 99.0, before=Phase.READY) for name in "xyz"]
    assert decide(Desired(active=V1), dead).memory.attempts["ka"].deaths == 1


def test_a_new_update_starts_with_a_clean_record():
    memory = Memory(1, {"ka": Attempts(5, not_before_s=1e9, last_death_s=99.0)})
    outcome = decide(Desired(pending=Config(2, (A,))), [], memory)
    assert of_kind(outcome, Start)


def test_one_replica_goes_ahead_then_the_others_follow():
    wide = Config(1, (replace(A, wanted_concurrency=16),))
    assert len(of_kind(decide(Desired(pending=wide)), Start)) == 1
    outcome = decide(Desired(pending=wide), [ready("r", max_concurrency=4)])
    assert len(of_kind(outcome, Start)) == 3
    assert not of_kind(outcome, Promote)


def test_many_replicas_start_a_few_at_a_time():
    wide = Config(1, (replace(A, wanted_concurrency=4096),))
    one = ready("r", max_concurrency=2)
    assert len(of_kind(decide(Desired(active=wide), [one]), Start)) == STARTS_AT_ONCE
    busy = [one, *(Replica(f"s{n}", "ka", Phase.STARTING, 99.0) for n in range(STARTS_AT_ONCE - 1))]
    assert len(of_kind(decide(Desired(active=wide), busy), Start)) == 1
    full = [*busy, Replica("last", "ka", Phase.STARTING, 99.0)]
    assert not of_kind(decide(Desired(active=wide), full), Start)


def test_surplus_replicas_leave_with_the_youngest_first():
    replicas = [ready("old", since_s=1.0, served=True), ready("young", since_s=2.0, served=True)]
    outcome = decide(Desired(active=V1), replicas)
    assert [action.replica_id for action in outcome.actions] == ["young"]


def test_draining_replica_is_stopped_only_when_routers_let_go_of_it():
    draining = Replica("r", "gone", Phase.DRAINING, 99.0, served=True)
    assert decide(Desired(), [draining]).actions == ()
    assert of_kind(decide(Desired(), [replace(draining, served=False)]), Terminate)
    assert of_kind(decide(Desired(), [draining], now_s=99.0 + RELEASE_LIMIT_S), Terminate)


def test_replica_that_does_not_end_is_killed_once():
    stopping = Replica("r", "gone", Phase.STOPPING, 0.0, drain_timeout_s=30.0)
    assert decide(Desired(), [stopping], now_s=31.0).actions == ()
    assert of_kind(decide(Desired(), [stopping], now_s=33.0), Kill)
    assert decide(Desired(), [replace(stopping, killed=True)], now_s=33.0).actions == ()


def test_end_of_a_draining_replica_is_no_mishap():
    ended = Replica("r", "ka", Phase.DEAD, 99.0, before=Phase.STOPPING)
    outcome = decide(Desired(active=V1), [ended])
    assert of_kind(outcome, Forget)[0].expected
    assert not outcome.memory.attempts
    assert of_kind(outcome, Start)


def test_stopped_endpoint_runs_nothing():
    outcome = decide(
        Desired(active=V1, stopped=True), [ready("r", served=True), Replica("s", "ka", Phase.STARTING, 99.0)]
    )
    assert [type(action) for action in outcome.actions] == [Drain, Terminate]


def test_deleted_endpoint_drains_everything_and_forgets():
    outcome = decide(Desired(), [ready("r", served=True)], Memory(3, {"ka": Attempts(1)}))
    assert of_kind(outcome, Drain)
    assert outcome.memory == Memory()


def test_as_many_replicas_as_the_autoscaler_wants():
    three = Config(1, (replace(A, replicas=3),))
    outcome = decide(Desired(active=three), [ready("r1")])
    assert len(of_kind(outcome, Start)) == 2
    assert (outcome.active["a"].ready, outcome.active["a"].wanted) == (1, 3)
    one = Config(1, (replace(A, replicas=1),))
    outcome = decide(Desired(active=one), [ready("r1", served=True, since_s=1.0), ready("r2", served=True)])
    assert [action.replica_id for action in of_kind(outcome, Drain)] == ["r1"]


def test_scaled_to_zero_is_ready_and_wakes_with_all_that_are_wanted():
    none = Config(1, (replace(A, replicas=0),))
    outcome = decide(Desired(active=none), [ready("r1", served=True)])
    assert [action.replica_id for action in of_kind(outcome, Drain)] == ["r1"]
    outcome = decide(Desired(active=none))
    assert outcome.actions == ()
    assert outcome.active["a"].deployment is Deployment.READY
    assert "Scaled to zero" in outcome.active["a"].message
    outcome = decide(Desired(active=Config(1, (replace(A, replicas=2),))))
    assert len(of_kind(outcome, Start)) == 2
    assert outcome.active["a"].deployment is Deployment.RECOVERING


def test_a_new_version_is_proven_by_one_replica_before_the_others_start_and_never_by_none():
    pending = Config(2, (replace(B, replicas=4),))
    outcome = decide(Desired(V1, pending), [ready("r1")])
    assert len(of_kind(outcome, Start)) == 1
    outcome = decide(Desired(V1, pending), [ready("r1"), ready("r2", "kb")])
    assert len(of_kind(outcome, Start)) == 3
    assert not of_kind(outcome, Promote)
    outcome = decide(Desired(V1, Config(2, (replace(B, replicas=0),))), [ready("r1")])
    assert len(of_kind(outcome, Start)) == 1
    assert not of_kind(outcome, Promote)


def test_of_too_many_the_one_with_least_to_finish_goes_unless_one_still_starts():
    one = Config(1, (replace(A, replicas=1),))
    busy = ready("r1", served=True, outstanding_mmu=900, since_s=5.0)
    idle = ready("r2", served=True, outstanding_mmu=10)
    outcome = decide(Desired(active=one), [busy, idle])
    assert [action.replica_id for action in of_kind(outcome, Drain)] == ["r2"]
    two = Config(1, (replace(A, replicas=2),))
    outcome = decide(Desired(active=two), [busy, idle, Replica("r3", "ka", Phase.STARTING, 90.0)])
    assert [action.replica_id for action in of_kind(outcome, Terminate)] == ["r3"]
    assert not of_kind(outcome, Drain)
