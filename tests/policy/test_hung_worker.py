"""Which worker is hung: one that is at work on nothing but what nobody waits for, for longer than calls take."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.hung_worker import GRACE_S, UNPROVEN_S, USUAL, WINDOW, RunningCall, UsualCall, grace_s, judge

NOW_S = 1000.0
times_s = st.floats(0.0, NOW_S)
usuals_s = st.none() | st.floats(0.0, 100.0)
wanted_calls = st.builds(RunningCall, unwanted_s=st.none(), heard_s=times_s, read=st.just(True))
any_calls = st.builds(RunningCall, unwanted_s=st.none() | times_s, heard_s=times_s, read=st.booleans())


def hung(*calls: RunningCall, usual_s: float | None = 0.1, watched_s: float = 0.0, now_s: float = NOW_S) -> bool:
    return judge(calls, usual_s, watched_s, now_s).hung


def unwanted_for(seconds: float) -> RunningCall:
    return RunningCall(NOW_S - seconds, 0.0)


@given(st.lists(wanted_calls), usuals_s, times_s)
def test_wanted_calls_are_never_hung_however_slow(calls, usual_s, watched_s):
    assert not hung(*calls, usual_s=usual_s, watched_s=watched_s)


@given(st.lists(any_calls), wanted_calls, usuals_s, st.integers(0))
def test_one_wanted_call_that_was_read_saves_its_worker(calls, wanted, usual_s, place):
    calls.insert(place % (len(calls) + 1), wanted)
    assert not hung(*calls, usual_s=usual_s)


@given(st.lists(any_calls, min_size=1), usuals_s, times_s)
def test_a_hung_worker_has_an_overdue_call_and_nothing_that_may_yet_be_answered(calls, usual_s, watched_s):
    if not hung(*calls, usual_s=usual_s, watched_s=watched_s):
        return
    patience_s = grace_s(usual_s)
    assert all(NOW_S - call.heard_s > patience_s for call in calls)
    assert all(not call.read or call.unwanted_s is not None for call in calls)
    assert any(call.unwanted_s is not None and NOW_S - call.unwanted_s > patience_s for call in calls)


@given(st.lists(any_calls, min_size=1), st.floats(0.0, 100.0), st.floats(0.0, 100.0), times_s)
def test_no_worker_recovers_by_waiting_and_none_hangs_by_a_slower_model(calls, usual_s, later_s, watched_s):
    if hung(*calls, usual_s=usual_s, watched_s=watched_s):
        assert hung(*calls, usual_s=usual_s, watched_s=watched_s, now_s=NOW_S + later_s)
    else:
        assert not hung(*calls, usual_s=usual_s + later_s, watched_s=watched_s)


@given(st.lists(st.floats(0.0, NOW_S), min_size=1), st.floats(0.0, 100.0))
def test_every_worker_whose_calls_all_lost_their_requests_is_hung_in_time(unwanted_s, usual_s):
    calls = [RunningCall(since_s, 0.0) for since_s in unwanted_s]
    assert hung(*calls, usual_s=usual_s, now_s=NOW_S + grace_s(usual_s) + 0.01)


def test_an_idle_worker_is_not_hung():
    assert not hung()


def test_the_grace_is_two_seconds_or_three_usual_calls():
    assert hung(unwanted_for(GRACE_S + 0.01))
    assert not hung(unwanted_for(GRACE_S - 0.01))
    assert hung(unwanted_for(3 * 7.0 + 0.01), usual_s=7.0)
    assert not hung(unwanted_for(3 * 7.0 - 0.01), usual_s=7.0)
    assert USUAL == 3.0


def test_a_worker_that_has_answered_nothing_gets_longer():
    assert not hung(unwanted_for(UNPROVEN_S - 0.01), usual_s=None)
    assert hung(unwanted_for(UNPROVEN_S + 0.01), usual_s=None)


def test_a_shared_call_that_is_heard_of_goes_on():
    call = unwanted_for(30.0)
    assert hung(call)
    assert not hung(replace(call, heard_s=NOW_S - 1.0))


def test_what_waits_unread_behind_an_overdue_call_does_not_save_the_worker():
    unread = RunningCall(None, NOW_S - 10.0, read=False)
    assert hung(unwanted_for(5.0), unread)
    assert not hung(unread)  # by itself it says nothing: nobody has given up
    assert not hung(unwanted_for(5.0), replace(unread, heard_s=NOW_S - 1.0))
    assert not hung(unwanted_for(5.0), replace(unread, read=True))


def test_time_that_nobody_watched_counts_for_nothing():
    assert not hung(unwanted_for(500.0), watched_s=NOW_S - 1.0)
    assert hung(unwanted_for(500.0), watched_s=NOW_S - 3.0)


def test_a_verdict_says_why():
    verdict = judge([unwanted_for(5.0), RunningCall(None, 0.0, read=False)], 0.1, 0.0, NOW_S)
    assert verdict.reason == ("1 call went on for 2.0 s after the deadline or the client's end, and 1 waited unread")
    assert "2 calls went" in judge([unwanted_for(5.0)] * 2, 0.1, 0.0, NOW_S).reason


def test_usual_is_the_median_which_a_slow_first_call_does_not_move():
    usual = UsualCall()
    assert usual.usual_s is None
    usual.observe(60.0)
    for _ in range(2):
        usual.observe(0.1)
    assert usual.usual_s == 0.1
    for _ in range(WINDOW):
        usual.observe(5.0)
    assert usual.usual_s == 5.0
