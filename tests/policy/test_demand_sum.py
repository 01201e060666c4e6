"""What routers report, summed to one sample: weights, lost and restarted routers, what is not known."""

import pytest

from steelyard.policy.demand_sum import DemandSum, Totals


def after(seconds, per_s=10, took_s=0.5, mmu=100, **now):
    """Totals of a router that has served so many a second."""
    count = seconds * per_s
    return Totals(
        arrived=count,
        settled=count,
        settled_mmu=count * mmu,
        busy_s=count * took_s,
        busy_mmu_s=count * mmu * took_s,
        **now,
    )


def test_requests_of_equal_weight_count_one_each():
    sums = DemandSum()
    sums.take([after(0)], 0.0, 1, 0)
    sample = sums.take([after(1, running=5, running_mmu=500, queued=3, queued_mmu=300)], 1.0, 2, 1)
    assert (sample.demand, sample.queued, sample.ready, sample.starting) == (8, 3, 2, 1)
    assert sample.arrived_per_s == 10
    assert sample.service_s == 0.5


def test_heavy_requests_count_as_more_than_one_up_to_a_bound():
    sums = DemandSum()
    sums.take([after(0)], 0.0, 1, 0)
    assert sums.take([after(1, running=2, running_mmu=300)], 1.0, 1, 0).demand == 3
    assert sums.take([after(2, running=2, running_mmu=90_000)], 2.0, 1, 0).demand == 4
    assert sums.take([after(3, running=2, running_mmu=1)], 3.0, 1, 0).demand == 1


def test_the_time_at_a_replica_is_that_of_a_unit_of_weight_not_of_a_request():
    sums = DemandSum()
    sums.take([Totals()], 0.0, 1, 0)
    sample = sums.take([Totals(arrived=2, settled=2, settled_mmu=1000, busy_s=10, busy_mmu_s=9010)], 1.0, 1, 0)
    assert sample.service_s == 9.01  # 900 mmu took 10 s, 100 mmu took 0.1 s


def test_a_silent_router_is_in_no_sum_and_its_last_report_counts_for_nothing():
    sums = DemandSum()
    sums.take([after(0, running=4, running_mmu=400), after(0, running=4)], 0.0, 1, 0)
    sample = sums.take([None, after(1, running=4, running_mmu=400)], 1.0, 1, 0)
    assert (sample.demand, sample.reporters, sample.expected) == (4, 1, 2)
    assert sample.whole().demand == 8


def test_no_router_is_no_data_and_not_zero():
    sample = DemandSum().take([None, None], 1.0, 1, 0)
    assert sample.demand is None
    assert sample.arrived_per_s is None
    assert not sample.known


def test_arrivals_while_a_router_was_silent_are_spread_over_its_silence():
    sums = DemandSum()
    sums.take([after(0)], 0.0, 1, 0)
    sums.take([None], 1.0, 1, 0)
    assert sums.take([after(2)], 2.0, 1, 0).arrived_per_s == 10


def test_a_router_that_restarted_begins_at_zero_and_one_seen_first_tells_no_rate():
    sums = DemandSum()
    assert sums.take([after(100)], 0.0, 1, 0).arrived_per_s is None
    assert sums.take([after(1, per_s=7)], 1.0, 1, 0).arrived_per_s == 7


def test_where_nothing_weighs_anything_requests_are_counted():
    sums = DemandSum()
    sums.take([after(0, mmu=0)], 0.0, 1, 0)
    sample = sums.take([after(1, mmu=0, running=5)], 1.0, 1, 0)
    assert sample.demand == 5
    assert sample.service_s == 0.5
    assert sums.mean_mmu is None


def test_what_waits_inside_a_replica_waits_and_makes_no_request_longer():
    """Sixteen are at a replica that runs two at once, each for 0.1 s: it takes 0.8 s to get through, at 20 a second."""
    sums = DemandSum()
    for second in range(5):
        sample = sums.take([after(second, per_s=20, took_s=0.8, running=16, running_mmu=1600)], float(second), 1, 0, 2)
    assert (sample.demand, sample.queued) == pytest.approx((16, 14))
    assert sample.service_s == pytest.approx(0.1)
    assert sample.arrived_per_s * sample.service_s == pytest.approx(2)


def test_those_that_leave_a_full_replica_last_tell_no_longer_time_than_the_others():
    sums = DemandSum()
    for second in range(5):
        sums.take([after(second, per_s=20, took_s=0.8, running=16, running_mmu=1600)], float(second), 1, 0, 2)
    sample = sums.take([after(5, per_s=20, took_s=0.8, running=1, running_mmu=100)], 4.5, 1, 0, 2)
    assert sample.service_s == pytest.approx(0.1)
    assert sample.queued == 0


def test_requests_that_still_run_while_no_replica_is_ready_run():
    sums = DemandSum()
    sample = sums.take([after(1, running=3)], 1.0, 0, 1, 0)
    assert (sample.demand, sample.queued) == (3, 0)
