"""What routers report, summed to one sample: weights, lost and restarted routers, what is not known."""

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
