"""When a calibration begins by itself, gives way and is tried again, on a clock of the test's."""

import math

from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.calibration_schedule import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_FAILURES,
    CalibrationSchedule,
    End,
    Seen,
)

IDLE = {"r": Seen(requests_total=5, in_flight=0)}


def quiet_schedule(now_s=100.0):
    schedule = CalibrationSchedule(quiet_s=30)
    schedule.look(IDLE, False, now_s - 30)
    schedule.look(IDLE, False, now_s)
    return schedule


def test_nothing_begins_before_it_has_been_quiet_for_long_enough():
    schedule = CalibrationSchedule(quiet_s=30)
    assert schedule.choose(["a"], 0) is None  # nobody has looked yet
    for now_s in (0, 10, 29.9):
        schedule.look(IDLE, False, now_s)
        assert schedule.choose(["a"], now_s) is None
    schedule.look(IDLE, False, 30)
    assert schedule.choose(["a"], 30) == "a"


def test_a_request_between_two_looks_counts_though_it_is_over_already():
    schedule = quiet_schedule()
    schedule.look({"r": Seen(requests_total=6, in_flight=0)}, False, 101)
    assert schedule.choose(["a"], 101) is None
    schedule.look({"r": Seen(requests_total=6, in_flight=0)}, False, 131)
    assert schedule.choose(["a"], 131) == "a"


def test_a_replica_that_says_nothing_and_one_that_starts_are_no_quiet():
    for replicas, starting in (({**IDLE, "mute": None}, False), (IDLE, True), ({"r": Seen(5, 1)}, False)):
        schedule = quiet_schedule()
        schedule.look(replicas, starting, 101)
        assert schedule.choose(["a"], 130) is None
        assert schedule.choose(["a"], 131) == "a"


def test_it_is_disturbed_by_what_comes_after_it_began():
    schedule = quiet_schedule()
    assert schedule.choose(["a"], 100) == "a"
    schedule.look(IDLE, False, 101)
    assert not schedule.is_disturbed
    schedule.look({"r": Seen(6, 1)}, False, 102)
    assert schedule.is_disturbed
    assert schedule.ended("a", End.DISTURBED, 103) == FIRST_PAUSE_S
    assert not schedule.is_disturbed


def test_only_one_is_under_way_and_another_may_follow():
    schedule = quiet_schedule()
    assert schedule.choose(["a", "b"], 100) == "a"
    assert schedule.choose(["a", "b"], 100) is None
    assert schedule.ended("a", End.DISTURBED, 101) == FIRST_PAUSE_S
    assert schedule.choose(["a", "b"], 101) == "b"
    assert schedule.ended("b", End.DONE, 102) is None
    assert schedule.choose(["a"], 102) is None
    assert schedule.choose(["a"], 101 + FIRST_PAUSE_S) == "a"


def test_pauses_double_up_to_an_hour_and_failures_are_given_up():
    schedule, now_s, pauses = quiet_schedule(), 100.0, []
    for _ in range(10):
        assert schedule.choose(["a"], now_s) == "a"
        pauses.append(schedule.ended("a", End.DISTURBED, now_s))
        now_s += pauses[-1]
    assert pauses[:3] == [60, 120, 240]
    assert pauses[-1] == LONGEST_PAUSE_S
    for times in range(1, MOST_FAILURES + 1):
        assert schedule.choose(["a"], now_s) == "a"
        pause_s = schedule.ended("a", End.FAILED, now_s)
        assert (pause_s is None) is (times == MOST_FAILURES)
        now_s += pause_s or 0
    assert schedule.choose(["a"], now_s + 10**9) is None


def test_a_version_that_left_and_came_back_begins_anew():
    schedule = quiet_schedule()
    schedule.choose(["a"], 100)
    schedule.ended("a", End.DISTURBED, 101)
    assert schedule.choose([], 102) is None
    assert schedule.choose(["a"], 103) == "a"


looks = st.lists(
    st.tuples(
        st.floats(0.01, 40),  # until this look
        st.integers(0, 3),  # requests that came meanwhile
        st.booleans(),  # whether something starts
        st.sampled_from([None, End.DONE, End.DISTURBED, End.FAILED]),  # how the one under way ended by now
    ),
    max_size=60,
)


@given(looks)
def test_whatever_happens_one_begins_only_in_quiet_and_never_in_its_pause(steps):
    schedule = CalibrationSchedule(quiet_s=30)
    now_s, total, busy_s = 0.0, 0, math.inf
    running, began_s, allowed_s = None, 0.0, {"a": 0.0, "b": 0.0}
    for passed_s, came, starting, end in steps:
        now_s += passed_s
        total += came
        if came or starting or busy_s == math.inf:
            busy_s = now_s
        schedule.look({"r": Seen(total, 0)}, starting, now_s)
        if running is not None and end is not None:
            assert schedule.is_disturbed is (busy_s > began_s)
            pause_s = schedule.ended(running, end, now_s)
            if end is not End.DONE:
                allowed_s[running] = math.inf if pause_s is None else now_s + pause_s
            running = None
        chosen = schedule.choose(["a", "b"], now_s)
        if chosen is not None:
            assert running is None
            assert now_s - busy_s >= 30
            assert now_s >= allowed_s[chosen]
            running, began_s = chosen, now_s
