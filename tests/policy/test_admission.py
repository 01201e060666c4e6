from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.admission import (
    MAX_RETRY_AFTER_S,
    SPREAD,
    Backlog,
    CompletionRate,
    SettleRate,
    Verdict,
    Work,
    admit,
    drain_rate,
    drain_time_s,
)
from steelyard.policy.rate_limits import Kind, RateLimit, Scope, Spent
from steelyard.policy.waiting import Priority

ROOM = Backlog(waiting=0, waiting_limit=10, buffered_bytes=0, buffered_limit_bytes=1000, replicas=2, recovering=False)


def backlog(**changes):
    return replace(ROOM, **changes)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.WAIT),
        ({"waiting": 9}, Verdict.WAIT),
        ({"waiting": 10}, Verdict.CONTENDED),
        ({"buffered_bytes": 950}, Verdict.CONTENDED),
        ({"replicas": 0}, Verdict.NO_CAPACITY),
        ({"replicas": 0, "recovering": True}, Verdict.WAIT),
        ({"replicas": 0, "recovering": True, "waiting": 10}, Verdict.NO_CAPACITY),
        ({"replicas": 0, "waiting": 10}, Verdict.NO_CAPACITY),
    ],
)
def test_contended_capacity_is_429_and_none_is_503(changes, verdict):
    admission = admit(backlog(**changes), 100, None)
    assert admission.verdict is verdict
    assert admission.reason
    assert (admission.retry_after_s > 0) == (verdict is not Verdict.WAIT)


def test_others_may_give_way_to_it_in_a_full_line_but_not_in_full_memory():
    assert admit(backlog(waiting=10), 100, None).line_is_full
    assert admit(ROOM, 100, None, work=replace(WORK, waiting_mmu=9_901)).line_is_full
    assert not admit(backlog(waiting=10, buffered_bytes=950), 100, None).line_is_full
    assert not admit(backlog(waiting=10, replicas=0), 100, None).line_is_full
    assert not admit(backlog(waiting=10), 100, None, spent=SPENT).line_is_full


def test_retry_after_is_the_drain_time_of_the_backlog():
    assert admit(backlog(waiting=10), 1, 2.0).retry_after_s == 5.5


@given(st.integers(0, 10**6), st.one_of(st.none(), st.floats(0, 10**6)))
def test_the_drain_time_is_bounded_and_never_zero(waiting, rate):
    assert 1.0 <= drain_time_s(waiting, rate) <= MAX_RETRY_AFTER_S


def test_an_unknown_rate_is_not_a_zero_rate():
    rate = CompletionRate()
    assert rate.per_s(100.0) is None
    rate.completed(100.2)
    assert rate.per_s(100.3) == 1.0
    assert rate.per_s(200.0) is None


@given(st.integers(1, 200), st.floats(1000, 10**6))
def test_a_steady_rate_is_measured(per_s, begin_s):
    rate = CompletionRate()
    for index in range(per_s * 12):
        rate.completed(begin_s + index / per_s)
    measured = rate.per_s(begin_s + 12)
    assert 0.8 * per_s <= measured <= 1.2 * per_s


@given(st.lists(st.floats(0, 1000), max_size=60))
def test_the_rate_never_counts_more_than_happened_whatever_the_gaps(times):
    rate = CompletionRate()
    for now_s in sorted(times):
        rate.completed(now_s)
    end_s = max(times, default=0.0)
    measured = rate.per_s(end_s) or 0.0
    assert 0.0 <= measured <= len(times)


WORK = Work(cost_mmu=100, waiting_mmu=0, waiting_limit_mmu=10_000, ahead_mmu=0, drained_mmu_per_s=1000.0)
SPENT = Spent(RateLimit(Kind.INPUT_TOKENS, Scope.USER, 100), 50, 12.0)
NEVER = Spent(RateLimit(Kind.INPUT_TOKENS, Scope.USER, 100), 500, None)


@pytest.mark.parametrize(
    ("changes", "work", "spent", "verdict", "retry_after_s"),
    [
        ({}, {}, None, Verdict.WAIT, 0.0),
        ({}, {"waiting_mmu": 9_900, "ahead_mmu": 9_900}, None, Verdict.WAIT, 0.0),
        ({}, {"waiting_mmu": 9_901, "ahead_mmu": 9_900}, None, Verdict.CONTENDED, 10.0),
        ({}, {"waiting_mmu": 9_901, "ahead_mmu": 900}, None, Verdict.CONTENDED, 1.0),  # little of its own class
        ({}, {"waiting_mmu": 9_901, "ahead_mmu": 9_901, "drained_mmu_per_s": None}, None, Verdict.CONTENDED, 1.0),
        ({}, {"waiting_mmu": 0, "cost_mmu": 10**9}, None, Verdict.WAIT, 0.0),  # heavier than the bound, alone
        ({"waiting": 10}, {"ahead_mmu": 4_900}, None, Verdict.CONTENDED, 5.0),
        ({"replicas": 0}, {"waiting_mmu": 9_901}, None, Verdict.NO_CAPACITY, 1.0),
        ({"replicas": 0, "recovering": True}, {"waiting_mmu": 9_901}, None, Verdict.NO_CAPACITY, 1.0),
        ({}, {}, SPENT, Verdict.BUDGET_SPENT, 12.0),
        ({"waiting": 10}, {}, SPENT, Verdict.BUDGET_SPENT, 12.0),
        ({"replicas": 0}, {}, SPENT, Verdict.BUDGET_SPENT, 12.0),
        ({}, {}, NEVER, Verdict.BUDGET_SPENT, None),
    ],
)
def test_a_spent_budget_is_told_from_contended_capacity_and_from_none(changes, work, spent, verdict, retry_after_s):
    admission = admit(backlog(**changes), 100, None, work=replace(WORK, **work), spent=spent)
    assert admission.verdict is verdict
    assert admission.retry_after_s == retry_after_s
    assert (admission.reason == spent.reason) if spent else admission.reason


def test_clients_that_were_refused_together_come_back_apart():
    times = [admit(backlog(waiting=10), 1, 2.0, draw=draw).retry_after_s for draw in (0.0, 0.5, 0.999)]
    assert times == [5.5, 5.5 * (1 + SPREAD / 2), 5.5 * (1 + SPREAD * 0.999)]


@pytest.mark.parametrize(
    ("replicas", "settled", "above", "rate"),
    [
        (2, None, 0.0, 2_000_000),
        (2, 1_500_000.0, 0.0, 1_500_000),
        (2, 1.0, 0.0, 200_000),  # an idle moment is no capacity
        (2, 1e9, 0.0, 20_000_000),
        (2, None, 500_000.0, 1_500_000),
        (2, None, 5_000_000.0, 20_000),  # nothing is left: a long time, not an unknown one
        (0, 1_000.0, 0.0, None),
    ],
)
def test_a_class_is_worked_off_by_what_those_above_leave(replicas, settled, above, rate):
    assert drain_rate(replicas, settled, above) == rate


def test_what_is_settled_is_observed_by_class_and_only_while_something_waits():
    rate = SettleRate()
    for tenth in range(1000, 1100):
        rate.settled(Priority.INTERACTIVE, 300, tenth / 10)
        rate.settled(Priority.BATCH, 100, tenth / 10)
    assert rate.mmu_per_s(0.0, 109.9) == 4000.0
    assert rate.mmu_per_s(104.5, 109.9) == 4000.0
    assert rate.mmu_per_s(0.0, 109.9, above=Priority.BATCH) == 3000.0
    assert rate.mmu_per_s(0.0, 109.9, above=Priority.INTERACTIVE) is None
    assert rate.mmu_per_s(108.5, 109.9) is None  # for too short a time
    assert rate.mmu_per_s(0.0, 200.0) is None


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(0, 10**6)), min_size=1), st.floats(0, 60))
def test_no_more_is_observed_than_was_settled(settlements, since_s):
    rate = SettleRate()
    for at_s, settled_mmu in sorted(settlements):
        rate.settled(Priority.PROBE, settled_mmu, at_s)
    seen = rate.mmu_per_s(since_s, 61.0)
    inside = sum(amount for at_s, amount in settlements if at_s >= max(since_s, 51.0))
    assert seen is None or 0 < seen * 2 <= inside
