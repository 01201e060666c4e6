"""Which waiting requests share a call: bounded by what a call is learnt to last, and only where that pays."""

import random

import pytest

from steelyard.policy.joining import COMPUTES, LEARN, MOST_REQUESTS, PAUSE, Joining, Ran, Waiting

BYTES = 100  # of a row


def ran(cost, rows=1, requests=1, *, calls=1, running=1, computing=1.0, slow=1.0) -> Ran:
    wall_s = slow * (cost[0] + rows * cost[1])
    return Ran(requests, calls, rows, rows * BYTES, computing * wall_s, wall_s, running)


def joining(cost, *, proven=None, calls=LEARN, **values) -> Joining:
    result = Joining(*(proven or cost))
    for _ in range(calls):
        result.observe(ran(cost, **values))
    return result


def waiting(count: int, rows: int = 1, left_s: float | None = None) -> list[Waiting]:
    return [Waiting(rows * BYTES, left_s)] * count


def test_cheap_rows_of_a_dear_call_go_together():
    assert joining((0.003, 0.00001)).together(waiting(16)) == 16
    assert joining((0.003, 0.00001)).together(waiting(500)) == MOST_REQUESTS


def test_a_call_of_dear_rows_is_no_longer_than_twice_one_of_one_row():
    policy = joining((0.004, 0.002))
    assert policy.most_rows == 4  # 12 ms: twice what one row takes
    assert policy.together(waiting(16)) == 4
    assert policy.together(waiting(16, rows=2)) == 2
    assert joining((0.0, 0.05)).together(waiting(16)) == 2


def test_short_calls_may_last_two_milliseconds():
    policy = joining((0.0, 0.0001))
    assert policy.together(waiting(60)) == policy.most_rows == 20


def test_one_request_is_always_taken_whatever_it_costs():
    policy = joining((0.004, 0.002))
    assert policy.together(waiting(1, rows=1000)) == 1
    assert policy.together(waiting(5, rows=1000)) == 1
    assert policy.together(waiting(5, left_s=0.0)) == 1


def test_nobody_is_joined_into_a_call_that_would_outlast_a_deadline():
    policy = joining((0.010, 0.001))
    assert policy.together(waiting(10)) == 10
    assert policy.together(waiting(10, left_s=0.0155)) == 5
    assert policy.together([*waiting(3), *waiting(1, left_s=0.0001), *waiting(5)]) == 3


def test_nothing_is_joined_before_calls_have_shown_that_the_model_computes():
    cost = (0.003, 0.00001)
    assert joining(cost, calls=LEARN - 1).together(waiting(16)) == 1
    assert joining(cost, computing=COMPUTES / 2).together(waiting(16)) == 1
    assert joining(cost, computing=0.05, running=8).together(waiting(16)) == 1
    assert joining(cost, computing=0.5, running=2).together(waiting(16)) == 16  # two that share one lock
    assert Joining(*cost).most_requests == 1


def test_calls_that_could_not_be_joined_teach_nothing():
    policy = Joining(0.003, 0.00001)
    for _ in range(50):
        policy.observe(Ran(1, 1, 0, 100, 0.003, 0.003, 1))
    assert policy.together(waiting(16)) == 1


@pytest.mark.parametrize("true", [(0.001, 0.001), (0.02, 0.0001), (0.0002, 0.00005), (0.0, 0.003)], ids=str)
def test_it_learns_what_calls_cost_whatever_was_proven(true):
    rng = random.Random(3)
    policy = Joining(0.0005, 0.0000001)
    for _ in range(400):
        rows = min(rng.choice([1, 1, 2, 5, 11]), policy.most_rows)
        policy.observe(ran(true, rows, rows, slow=rng.uniform(0.9, 1.1)))
    exact = joining(true).most_rows
    assert exact * 0.6 - 1 <= policy.most_rows <= exact * 1.6 + 1


def test_a_slower_machine_keeps_the_proportion_that_was_proven():
    policy = joining((0.04, 0.02), proven=(0.004, 0.002))
    assert policy.most_rows == 4


def test_a_worker_that_finds_answers_to_differ_ends_it_for_good():
    policy = joining((0.003, 0.00001))
    policy.refuse("other types")
    for _ in range(1000):
        policy.observe(ran((0.003, 0.00001)))
    assert policy.together(waiting(16)) == policy.most_requests == 1
    assert policy.apart == "other types"


def test_sharing_that_saves_no_calls_pauses():
    policy = joining((0.003, 0.00001))
    for _ in range(8):
        policy.observe(ran((0.003, 0.00001), 8, 8, calls=9))
    assert policy.together(waiting(16)) == 1
    for _ in range(PAUSE):
        policy.observe(ran((0.003, 0.00001)))
    assert policy.together(waiting(16)) == 16
