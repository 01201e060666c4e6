"""The horizontal axis against a fleet on virtual time: it follows the load, holds what it knows not, never flaps."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import DECIDE_EVERY_S, Horizontal, Limits, Reason
from support.scaling import run

LIMITS = Limits(1, 1000)


def steady(per_s):
    return lambda _: per_s


def step(before, after, at_s=60):
    return lambda second: before if second < at_s else after


def sample(at_s, demand, ready, starting=0, **more):
    return Sample(at_s=float(at_s), demand=demand, ready=ready, starting=starting, **more)


# --- what it does with load


def test_a_step_is_absorbed_without_ordering_much_more_than_it_needs():
    done = run(step(10, 1000), 400, limits=LIMITS)  # 1,000/s of 1 s each: 100 replicas of 10
    assert 100 <= max(done.wanted) <= 125  # a fifth more works off what waited meanwhile
    assert done.fleet.queued == 0


def test_where_arrivals_are_not_known_no_cycle_orders_more_than_three_times_what_there_is():
    done = run(step(10, 5000), 600, limits=LIMITS, replicas=4, cold_s=10.0, flow=False)
    orders = [decision.replicas for decision in done.decisions]
    assert max(orders) >= 500
    for before, after in itertools.pairwise(orders):
        assert after <= max(3 * before, before + 4)


def test_where_they_are_known_a_step_is_ordered_at_once_and_no_order_exceeds_the_load_by_more_than_its_shares():
    done = run(step(10, 5000, at_s=62), 300, limits=LIMITS, replicas=4, cold_s=60.0)
    assert done.wanted[70] >= 480
    assert max(done.wanted) <= 1.25 * 500  # a fifth to work off the queue, and noise


def test_a_surge_is_decided_on_at_once_and_only_until_it_is_ordered():
    horizontal = Horizontal(LIMITS, replicas=2)
    urgent = []
    for second in range(60):
        per_s, queued = (10.0, 0.0) if second < 40 else (500.0, 400.0)
        horizontal.observe(sample(second, 20.0 + queued, 2, queued=queued, arrived_per_s=per_s, service_s=1.0))
        if horizontal.urgent(float(second), 10.0):
            urgent.append(second)
            assert horizontal.decide(float(second), 10.0).replicas >= 50
    assert urgent == [41]  # the second of two seconds in a row
    assert not horizontal.urgent(100.0, 10.0)  # what is old surprises nobody


def test_one_bad_second_is_not_taken_for_a_load_that_needs_forty():
    done = run(
        lambda second: 400 if second == 62 else 20, 200, limits=LIMITS, replicas=3, cold_s=10.0, noise=False
    )  # fmt: skip
    assert max(done.wanted) <= 12


def test_a_ramp_that_fills_all_replicas_is_followed_ahead_of_what_has_arrived():
    def rate(second):
        return 20 + max(0, min(second, 120) - 60) * 10

    done = run(rate, 200, limits=LIMITS, replicas=3, cold_s=10.0, noise=False)
    followed = [decision for decision in done.decisions if decision.reason is Reason.RISE]
    assert followed
    assert all(decision.replicas <= 1.5 * decision.numbers["need"] / 10 + 1 for decision in followed)
    assert done.worst_wait_s < 20


def test_spikes_that_come_again_find_what_the_last_one_needed_and_calm_forgets_them():
    spike_s = range(600, 600 + 6 * 480, 480)
    done = run(
        lambda second: 400 if any(at <= second < at + 60 for at in spike_s) else 20, 4 * 3600, limits=LIMITS, replicas=3
    )
    before = [done.wanted[at - 1] for at in spike_s]
    assert before[0] < 10
    assert before[1] < 40  # given back too early, which is the mistake that is learnt from
    assert min(before[2:]) >= 40
    assert done.turns() <= 2
    assert done.wanted[-1] <= 4


def test_load_that_is_gone_is_followed_down_only_after_five_minutes_and_then_in_halves():
    done = run(step(300, 20, at_s=120), 1200, limits=LIMITS, replicas=33)
    assert min(done.wanted[: 120 + 270]) >= 30  # the window down has seen the peak
    assert done.wanted[-1] <= 4
    for before, after in zip(done.wanted, done.wanted[1:], strict=False):
        assert after >= before // 2


def test_one_replica_fewer_only_where_the_others_would_hold_the_load():
    """T16: 1.4 replicas' worth, two hours."""
    done = run(steady(14), 7200, limits=LIMITS, replicas=1)
    assert done.changes(since_s=600) <= 1
    assert done.wanted[-1] in {2, 3}


def test_replicas_that_take_minutes_to_start_are_ordered_once():
    """T17: a step to twice the load, 5 minutes from order to readiness."""
    done = run(step(17, 35), 1500, limits=LIMITS, replicas=2, cold_s=300.0, noise=False)
    assert 4 <= max(done.wanted) <= 5


def test_where_arrivals_are_not_known_nothing_is_ordered_while_an_order_starts():
    done = run(step(17, 35), 360, limits=LIMITS, replicas=2, cold_s=300.0, flow=False, noise=False)
    assert max(done.wanted) == 4


def test_a_queue_from_a_cold_start_does_not_multiply_the_order():
    """T33: from zero, 300 requests wait by the time the first replica is there."""
    limits = Limits(0, 1000, idle_timeout_s=600.0)
    done = run(steady(2.5), 900, limits=limits, replicas=0, cold_s=120.0, noise=False)
    assert max(done.wanted) <= 2
    assert done.fleet.queued == 0


def test_a_full_replica_with_a_queue_scales_though_its_utilisation_ends_at_one():
    """T40: target 1 and limit 1; nothing but the queue tells that more is wanted."""
    horizontal = Horizontal(LIMITS, replicas=1)
    for second in range(30):
        horizontal.observe(sample(second, 4.0, 1, queued=3.0))
    assert horizontal.decide(30.0, 1.0).replicas > 1


def test_clients_who_wait_for_their_answer_get_the_replicas_that_their_queue_needs():
    """A closed loop never arrives faster than it is served; its queue stands."""
    horizontal = Horizontal(LIMITS, replicas=1)
    for second in range(30):
        horizontal.observe(sample(second, 40.0, 1, queued=30.0, arrived_per_s=10.0, service_s=1.0))
    decision = horizontal.decide(30.0, 10.0)
    assert decision.reason is Reason.STANDING_QUEUE
    assert decision.replicas == 2


@pytest.mark.parametrize("cold_s", [10.0, 300.0])
@pytest.mark.parametrize("lost", [0.0, 0.3])
@pytest.mark.parametrize("per_s", [14, 95, 300])
def test_constant_noisy_load_changes_direction_at_most_twice_in_ten_minutes(cold_s, lost, per_s):
    done = run(
        steady(per_s), 3600, limits=LIMITS, replicas=per_s // 10 + 1, cold_s=cold_s,
        sample=lambda made, rng: None if rng.random() < lost else made,
    )  # fmt: skip
    assert done.turns() <= 2
    assert done.fleet.queued < per_s


def test_a_slow_starter_is_ordered_ahead_of_a_load_that_keeps_rising():
    def rate(second):
        return 50 + second / 6

    slow, fast = (run(rate, 1200, limits=LIMITS, replicas=7, cold_s=cold_s) for cold_s in (240.0, 1.0))
    assert slow.wanted[900] > fast.wanted[900]
    assert any(decision.reason is Reason.RISE for decision in slow.decisions)


# --- to zero and from zero


def test_idle_goes_to_zero_after_its_timeout_and_one_request_brings_one_replica():
    limits = Limits(0, 10, idle_timeout_s=120.0)
    done = run(lambda second: 5 if second < 60 or second == 900 else 0, 1000, limits=limits, noise=False)
    assert done.wanted[60 + 110] == 1
    assert done.wanted[60 + 140] == 0
    assert done.wanted[890] == 0
    assert max(done.wanted[901:]) == 1


def test_a_herd_at_zero_starts_one_set():
    """24: 700 requests/s for 30 s at zero replicas, 20 s until one is ready."""
    limits = Limits(0, 200, idle_timeout_s=600.0)
    done = run(lambda second: 700 if 10 <= second < 40 else 0, 120, limits=limits, replicas=0, cold_s=20.0)
    assert max(done.wanted) <= 90  # 70 hold 700/s
    assert done.fleet.queued == 0


def test_a_minimum_above_zero_never_goes_to_zero():
    done = run(steady(0), 3600, limits=Limits(2, 10), replicas=5, noise=False)
    assert done.wanted[-1] == 2


# --- what it does not know


def test_no_report_at_all_holds_and_says_so():
    decision = Horizontal(LIMITS, replicas=7).decide(100.0, 10.0)
    assert (decision.replicas, decision.reason) == (7, Reason.NO_DATA)


@pytest.mark.parametrize("missing", ["silence", "unknown demand", "no reporter"])
def test_figures_that_stop_coming_hold_for_as_long_as_it_takes(missing):
    """T18: dead routers, a source that is down: neither zero nor the last value for ever."""
    horizontal = Horizontal(LIMITS, replicas=8)
    for second in range(60):
        horizontal.observe(sample(second, 75.0, 8))
        if second % 5 == 0:
            assert horizontal.decide(float(second), 10.0).replicas == 8
    for second in range(60, 3600):
        if missing == "unknown demand":
            horizontal.observe(sample(second, None, 8))
        elif missing == "no reporter":
            horizontal.observe(sample(second, 0.0, 8, reporters=0, expected=2))
        if second % 5 == 0 and second > 66:
            decision = horizontal.decide(float(second), 10.0)
            assert (decision.replicas, decision.reason) == (8, Reason.STALE)


def test_zero_is_a_figure():
    """T18, `ray#61796`: an idle endpoint goes down, it is not one without data."""
    horizontal = Horizontal(LIMITS, replicas=8)
    for second in range(900):
        horizontal.observe(sample(second, 0.0, horizontal.replicas))
        if second % 5 == 0:
            horizontal.decide(float(second), 10.0)
    assert horizontal.replicas == 1


def test_routers_that_report_stand_for_those_that_do_not():
    whole, half = Horizontal(LIMITS, replicas=10), Horizontal(LIMITS, replicas=10)
    for second in range(30):
        whole.observe(sample(second, 200.0, 10, reporters=2, expected=2))
        half.observe(sample(second, 100.0, 10, reporters=1, expected=2))
    assert whole.decide(30.0, 10.0).replicas == half.decide(30.0, 10.0).replicas == 20


def test_no_fewer_without_a_whole_window_that_was_seen():
    """23: a restart without memory must not scale down by what it saw in a few seconds."""
    horizontal = Horizontal(LIMITS, replicas=50)
    for second in range(200):
        horizontal.observe(sample(second, 10.0, 50))
        if second % 5 == 0:
            decision = horizontal.decide(float(second), 10.0)
            assert decision.replicas == 50
    assert decision.reason is Reason.UNSEEN


def test_a_sample_that_comes_twice_counts_once():
    """23, a duplicated scrape."""
    once, twice = Horizontal(LIMITS, replicas=3), Horizontal(LIMITS, replicas=3)
    for second in range(60):
        made = sample(second, 30.0 + second, 3, arrived_per_s=30.0 + second, service_s=1.0)
        once.observe(made)
        for _ in range(3):
            twice.observe(made)
    assert once.decide(60.0, 10.0) == twice.decide(60.0, 10.0)


def test_replicas_that_never_become_ready_do_not_make_the_order_grow():
    """25: a version that crashes while it starts."""
    horizontal = Horizontal(LIMITS, replicas=2)
    orders = []
    for second in range(1800):
        horizontal.observe(sample(second, 60.0, 2, max(0, horizontal.replicas - 2), queued=40.0))
        if second % 5 == 0:
            orders.append(horizontal.decide(float(second), 10.0).replicas)
    assert max(orders) <= 8


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_that_is_missing_or_absurd_is_refused(target):
    """T18, `llm-d-autoscaling#380`: an absent threshold is not zero."""
    with pytest.raises(ValueError, match="target"):
        Horizontal(LIMITS).decide(0.0, target)


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        ((3, 2), "range"),
        ((-1, 2), "range"),
        ((0, 0), "range"),
        ((0, 4), "idle timeout"),
        ((0, 4, 0.0), "idle timeout"),
        ((1, 4, None, 0.0), "budget"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds, word):
    with pytest.raises(ValueError, match=word):
        Limits(*bounds)


# --- the budget


def test_a_spent_budget_bounds_growth_and_never_ends_service():
    limits = Limits(1, 100, replica_hours_per_day=48.0)  # two replicas all day
    done = run(steady(200), 4 * 3600, limits=limits, replicas=2, noise=False)
    assert max(done.wanted) >= 20
    assert done.wanted[-1] == 2
    assert done.decisions[-1].reason is Reason.BUDGET
    assert min(done.wanted) >= 1


# --- invariants


LOADS = st.lists(
    st.tuples(
        st.integers(1, 40),  # seconds until the next
        st.none() | st.floats(0, 5000),
        st.floats(0, 1),  # of it, queued
        st.none() | st.floats(0, 2000),
        st.none() | st.floats(0.001, 30),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=60,
)
BOUNDS = st.tuples(st.integers(0, 20), st.integers(1, 200)).filter(lambda pair: pair[0] <= pair[1])


def drive(horizontal, loads, on_decision, between=None):
    now_s = 0.0
    for after_s, demand, queued, arrived, service_s, reporters in loads:
        now_s += after_s
        made = Sample(
            at_s=now_s, demand=demand, ready=horizontal.replicas, starting=0, queued=(demand or 0.0) * queued,
            arrived_per_s=arrived, service_s=service_s, reporters=reporters, expected=3,
        )  # fmt: skip
        horizontal.observe(made)
        if between is not None:
            horizontal = between(horizontal)
        on_decision(horizontal.decide(now_s + 1, 7.0, 20.0), made)


@settings(max_examples=200, deadline=None)
@given(LOADS, BOUNDS, st.none() | st.floats(0.5, 500))
def test_whatever_comes_the_number_stays_within_the_bounds(loads, bounds, hours):
    limits = Limits(*bounds, idle_timeout_s=60.0, replica_hours_per_day=hours)
    numbers = []

    def check(decision, _):
        assert limits.min_replicas <= decision.replicas <= limits.max_replicas
        assert decision.reason
        json.dumps(decision.numbers, allow_nan=False)
        numbers.append(decision.replicas)

    drive(Horizontal(limits, replicas=bounds[0]), loads, check)
    assert numbers


@settings(max_examples=100, deadline=None)
@given(LOADS, BOUNDS, st.none() | st.floats(0.5, 500))
def test_a_restart_between_any_two_decisions_changes_none_of_them(loads, bounds, hours):
    limits = Limits(*bounds, idle_timeout_s=60.0, replica_hours_per_day=hours)
    through, restarted = [], []
    drive(Horizontal(limits), loads, lambda decision, _: through.append(decision))
    drive(
        Horizontal(limits), loads, lambda decision, _: restarted.append(decision),
        between=lambda horizontal: Horizontal(limits, json.loads(json.dumps(horizontal.state()))),
    )  # fmt: skip
    assert restarted == through


@settings(max_examples=100, deadline=None)
@given(LOADS)
def test_what_no_router_tells_moves_nothing(loads):
    silent = [(after_s, None, *rest) for after_s, _, *rest in loads]
    decisions = []
    drive(Horizontal(LIMITS, replicas=5), silent, lambda decision, _: decisions.append(decision))
    assert {(decision.replicas, decision.reason) for decision in decisions} == {(5, Reason.NO_DATA)}


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 3000), st.floats(1.0, 3.0))
def test_more_load_never_gets_fewer_replicas(load, factor):
    def told(units):
        horizontal = Horizontal(LIMITS, replicas=1)
        for second in range(60):
            horizontal.observe(sample(second, units, horizontal.replicas))
            if second % DECIDE_EVERY_S == 0:
                horizontal.decide(float(second), 10.0, 0.0)
        return horizontal.replicas

    assert told(load * factor) >= told(load)
