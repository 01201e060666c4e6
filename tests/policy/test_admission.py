from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.admission import (
    MAX_RETRY_AFTER_S,
    Backlog,
    CompletionRate,
    Verdict,
    admit,
    drain_time_s,
)

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
