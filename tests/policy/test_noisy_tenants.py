"""A noisy tenant and the waits of the others, in virtual time: what start-time fair queueing promises, and a fleet."""

import heapq
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.fair_queue import FairQueue
from steelyard.policy.waiting import Bounds, Place, Priority

ROOMY = Bounds(requests=10**6, mmu=10**12, body_bytes=10**12)
INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH


def serve(arrivals, servers=1, bounds=ROOMY):
    """Serve (time, tenant, cost, priority) at one mmu per second and server. The result is (arrival, start), or None
    for what was refused or gave way, in the order of arrival."""
    queue = FairQueue(bounds)
    outcome = [None] * len(arrivals)
    places = {}
    busy = []  # (when it is done, number)
    order = sorted(range(len(arrivals)), key=lambda number: arrivals[number][0])

    def start(now_s):
        while queue and len(busy) < servers:
            place = queue.next()
            outcome[place.item] = (arrivals[place.item][0], now_s)
            heapq.heappush(busy, (now_s + place.cost_mmu, place.item))

    def finish_until(now_s):
        while busy and busy[0][0] <= now_s:
            done_s, number = heapq.heappop(busy)
            queue.settle(places[number], places[number].cost_mmu)
            start(done_s)

    for number in order:
        now_s, tenant, cost_mmu, priority = arrivals[number]
        finish_until(now_s)
        places[number] = Place(number, tenant, priority, cost_mmu)
        queue.offer(places[number])
        start(now_s)
    finish_until(math.inf)
    assert not queue
    return outcome


GAPS = st.floats(0, 60)
COSTS = st.integers(1, 20)
FLOWS = st.lists(st.lists(st.tuples(GAPS, COSTS), min_size=1, max_size=25), min_size=2, max_size=4)


@given(FLOWS)
@settings(deadline=None)
def test_every_request_is_served_by_when_a_server_of_its_own_share_would_have_begun_it_and_one_of_each_other(flows):
    """Theorem 4 of Goyal et al.: with capacity C shared by Q tenants, each guaranteed r = C/Q, a request departs by
    EAT + Σ of the others' dearest / C + its own cost / C, where EAT is when it would begin if it had r to itself."""
    arrivals, expected = [], []
    for name, flow in enumerate(flows):
        now_s = free_s = 0.0
        for gap_s, cost_mmu in flow:
            now_s += gap_s
            begin_s = max(now_s, free_s)
            free_s = begin_s + cost_mmu * len(flows)
            arrivals.append((now_s, str(name), cost_mmu, INTERACTIVE))
            expected.append(begin_s)
    dearest = {str(name): max(cost for _, cost in flow) for name, flow in enumerate(flows)}
    for (_, tenant, _, _), begin_s, (_, started_s) in zip(arrivals, expected, serve(arrivals), strict=True):
        others = sum(cost for name, cost in dearest.items() if name != tenant)
        assert started_s <= begin_s + others + 1e-6


def poisson(rng, tenant, rate, until_s, cost, priority=INTERACTIVE):
    now_s, found = 0.0, []
    while (now_s := now_s + rng.expovariate(rate)) < until_s:
        found.append((now_s, tenant, cost(rng), priority))
    return found


def waits(arrivals, outcome, tenants):
    found = [
        started[1] - arrival[0]
        for arrival, started in zip(arrivals, outcome, strict=True)
        if started is not None and arrival[1] in tenants
    ]
    return sorted(found)


def p99(values):
    return values[int(len(values) * 0.99)]


@pytest.mark.parametrize("bounds", [ROOMY, Bounds(requests=64, mmu=10**9, body_bytes=10**9)], ids=["roomy", "tight"])
@pytest.mark.parametrize("servers", [1, 8])
def test_a_tenant_at_ten_times_its_share_costs_the_others_no_more_than_one_request_of_each(servers, bounds):
    """Four tenants at 60 % of their shares, alone and beside a fifth one at ten times its own."""
    rng = Random(7)
    cost = lambda rng: rng.randint(5, 15)  # noqa: E731
    share = servers / 10 / 5  # requests per second that one of five may have
    quiet = [one for tenant in "abcd" for one in poisson(rng, tenant, 0.6 * share, 20_000 / servers, cost)]
    noise = poisson(rng, "noisy", 10 * share, 20_000 / servers, cost)
    alone = waits(quiet, serve(quiet, servers, bounds), "abcd")
    outcome = serve(quiet + noise, servers, bounds)
    beside = waits(quiet + noise, outcome, "abcd")
    assert len(beside) == len(alone) == len(quiet)  # none was refused or sent away for it
    allowed_s = 5 * 15 / servers + (15 if servers > 1 else 0)  # on several servers, until the first one is free besides
    assert p99(beside) <= p99(alone) + allowed_s
    assert sum(beside) / len(beside) <= sum(alone) / len(alone) + allowed_s / 2
    worked = sum(cost for (_, tenant, cost, _), got in zip(quiet + noise, outcome, strict=True) if got)
    assert worked >= 0.9 * min(20_000, sum(one[2] for one in quiet + noise))  # and nothing idled for it


@pytest.mark.parametrize("servers", [1, 4])
def test_a_full_batch_class_costs_interactive_no_more_than_what_is_being_served(servers):
    rng = Random(3)
    cost = lambda rng: rng.randint(5, 15)  # noqa: E731
    interactive = poisson(rng, "a", 0.05 * servers, 20_000 / servers, cost)
    batch = [(0.0, "a", 10, BATCH) for _ in range(4000)]
    bounds = Bounds(requests=50, mmu=10**9, body_bytes=10**9)
    alone = waits(interactive, serve(interactive, servers, bounds), "a")
    outcome = serve(batch + interactive, servers, bounds)[len(batch) :]
    beside = waits(interactive, outcome, "a")
    assert len(beside) == len(interactive)
    assert p99(beside) <= p99(alone) + 2 * 15
