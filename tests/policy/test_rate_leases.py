"""Several routers under one limit: no minute sees more than it, whatever happens to messages and routers; and hardly
less under demand that never ends."""

import heapq
from collections import deque
from itertools import count
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.policy.rate_leases import REPORT_EVERY_S, Lease, LeaseAllocator, even_shares
from steelyard.policy.token_bucket import WINDOW_S, Bucket


class Fleet:
    """Routers and an allocator that exchange messages with delays, in virtual time."""

    def __init__(self, limit, routers, rng, *, lost=0.0, delay_s=(0.01, 0.3)):
        self.limit, self.rng, self.lost, self.delay_s = limit, rng, lost, delay_s
        names = [str(number) for number in range(routers)]
        shares = even_shares(limit, routers)
        self.allocator = LeaseAllocator(limit, dict(zip(names, shares, strict=True)))
        self.buckets = {name: Bucket(limit) for name in names}
        self.leases = {name: Lease(name, self.buckets[name], share) for name, share in zip(names, shares, strict=True)}
        self.taken = []  # (time, amount), of all routers
        self.refused = 0
        self.clients_come_back = False  # when they are told to
        self._events, self._number = [], count()

    def at(self, at_s, act, *arguments):
        heapq.heappush(self._events, (at_s, next(self._number), act, arguments))

    def run(self, until_s):
        for name in self.leases:
            self.at(self.rng.random() * REPORT_EVERY_S, self._report, name)
        while self._events and self._events[0][0] < until_s:
            now_s, _, act, arguments = heapq.heappop(self._events)
            act(now_s, *arguments)

    def ask(self, now_s, name, amount):
        if name not in self.leases:
            return
        bucket = self.buckets[name]
        if bucket.ask(amount, now_s):
            bucket.take(amount, now_s)
            self.taken.append((now_s, amount))
        else:
            self.refused += 1
            if self.clients_come_back:
                self.at(now_s + (bucket.room_in_s(amount, now_s) or 1.0), self.ask, name, amount)

    def kill(self, now_s, name, noticed_s):
        del self.leases[name]
        self.at(now_s + noticed_s, lambda now_s: self.allocator.remove(name, now_s))

    def _later(self, now_s, act, *arguments):
        if self.rng.random() >= self.lost:
            self.at(now_s + self.rng.uniform(*self.delay_s), act, *arguments)

    def _report(self, now_s, name):
        if name in self.leases:
            self._later(now_s, self._answer, name, self.leases[name].report(now_s))
            self.at(now_s + REPORT_EVERY_S, self._report, name)

    def _answer(self, now_s, name, report):
        grant = self.allocator.report(report, now_s)
        if grant is not None:
            self._later(now_s, self._follow, name, grant)

    def _follow(self, _, name, grant):
        if name in self.leases:
            self.leases[name].follow(grant)

    def fullest_minute(self):
        window, total, most = deque(), 0, 0
        for at_s, amount in self.taken:
            window.append((at_s, amount))
            total += amount
            while window[0][0] <= at_s - WINDOW_S:
                total -= window.popleft()[1]
            most = max(most, total)
        return most

    def used(self, begin_s, end_s):
        """How much of the limit was taken on average."""
        total = sum(amount for at_s, amount in self.taken if begin_s <= at_s < end_s)
        return total * WINDOW_S / (end_s - begin_s) / self.limit


def demand(fleet, rng, shares, times_limit, until_s, amounts, at_s=0.0):
    """Poisson arrivals that sum to so many times the limit, split over the routers by `shares`."""
    mean = sum(amounts) / len(amounts)
    rate = times_limit * fleet.limit / WINDOW_S / mean
    names = list(shares)
    while (at_s := at_s + rng.expovariate(rate)) < until_s:
        fleet.at(at_s, fleet.ask, rng.choices(names, list(shares.values()))[0], rng.choice(amounts))


def skewed(routers, skew):
    return {str(number): skew**-number for number in range(routers)}


@pytest.mark.parametrize("limit", [600, 60_000])
@pytest.mark.parametrize("skew", [1, 1000])
@pytest.mark.parametrize("routers", [1, 2, 3, 4])
def test_no_minute_sees_more_than_the_limit_and_hardly_less_is_used(routers, skew, limit):
    rng = Random(routers * 1000 + skew)
    fleet = Fleet(limit, routers, rng)
    demand(fleet, rng, skewed(routers, skew), 3, 420, [1] if limit == 600 else [40, 100, 600])
    fleet.run(420)
    assert fleet.fullest_minute() <= limit
    assert fleet.used(0, 420) >= 0.95


def test_shares_follow_demand_that_moves():
    rng = Random(1)
    fleet = Fleet(6000, 4, rng)
    for turn in range(6):
        demand(fleet, rng, {str(turn % 4): 1.0}, 1.5, (turn + 1) * 120, [1, 5, 20], turn * 120)
    fleet.run(720)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(0, 720) >= 0.95


@pytest.mark.parametrize("noticed_s", [0.0, 0.3, 5.0])
def test_the_share_of_a_router_that_is_lost_goes_to_the_others_when_its_minute_is_over(noticed_s):
    rng = Random(2)
    fleet = Fleet(6000, 4, rng)
    demand(fleet, rng, skewed(4, 1.5), 3, 900, [1, 5, 20])
    fleet.at(300.0, fleet.kill, "0", noticed_s)
    fleet.run(900)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(0, 900) >= 0.95
    assert fleet.used(370 + noticed_s, 900) >= 0.95


@pytest.mark.parametrize("lost", [0.1, 0.5])
def test_messages_that_are_lost_late_or_out_of_order_do_no_harm(lost):
    rng = Random(3)
    fleet = Fleet(6000, 4, rng, lost=lost, delay_s=(0.0, 3.0))
    demand(fleet, rng, skewed(4, 10), 3, 600, [1, 5, 20])
    fleet.run(600)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(0, 600) >= 0.93


def test_without_the_allocator_routers_go_on_with_what_they_have():
    rng = Random(4)
    fleet = Fleet(6000, 3, rng)
    demand(fleet, rng, skewed(3, 2), 3, 600, [1, 5, 20])
    fleet.at(200.0, lambda _: setattr(fleet, "lost", 1.0))
    fleet.run(600)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(0, 600) >= 0.95


def test_demand_within_the_limit_is_hardly_ever_refused():
    rng = Random(5)
    fleet = Fleet(6000, 4, rng)
    demand(fleet, rng, skewed(4, 2), 0.7, 900, [1, 5, 20])
    fleet.run(900)
    assert fleet.refused <= 0.01 * len(fleet.taken)


def test_amounts_above_an_even_share_are_let_in_by_turns():
    rng = Random(6)
    fleet = Fleet(10_000, 4, rng)
    fleet.clients_come_back = True
    demand(fleet, rng, skewed(4, 1), 1.5, 1200, [4000])
    fleet.run(1200)
    assert fleet.fullest_minute() <= 10_000
    assert fleet.used(120, 1200) >= 0.7  # two of them fit into a minute: 0.8


def test_a_new_allocator_moves_nothing_until_it_knows_every_share():
    rng = Random(8)
    fleet = Fleet(6000, 4, rng)
    demand(fleet, rng, skewed(4, 3), 3, 600, [1, 5, 20])

    def restart(_):
        fleet.allocator = LeaseAllocator(6000, dict.fromkeys(fleet.leases))

    fleet.at(200.0, restart)
    fleet.at(290.0, restart)
    fleet.run(600)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(0, 600) >= 0.95


class Messages(RuleBasedStateMachine):
    """Any order of reports, grants, losses, repetitions, new and lost routers: what may be taken never passes the
    limit, nor does what was taken in a minute."""

    @initialize(limit=st.integers(1, 200), routers=st.integers(1, 4))
    def open(self, limit, routers):
        self.limit = limit
        shares = {str(number): share for number, share in enumerate(even_shares(limit, routers))}
        self.allocator = LeaseAllocator(limit, shares)
        self.buckets = {name: Bucket(limit) for name in shares}
        self.leases = {name: Lease(name, self.buckets[name], share) for name, share in shares.items()}
        self.reports, self.grants, self.taken = [], [], deque()
        self.now_s, self.names = 0.0, routers

    @rule(data=st.data(), amount=st.integers(1, 80))
    def ask(self, data, amount):
        bucket = self.buckets[data.draw(st.sampled_from(sorted(self.leases)))]
        if bucket.ask(amount, self.now_s):
            bucket.take(amount, self.now_s)
            self.taken.append((self.now_s, amount))

    @rule(data=st.data())
    def report(self, data):
        name = data.draw(st.sampled_from(sorted(self.leases)))
        self.reports.append(self.leases[name].report(self.now_s))

    @precondition(lambda self: self.reports)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data, again):
        report = data.draw(st.sampled_from(self.reports))
        if not again:
            self.reports.remove(report)
        if report.router in self.leases:
            grant = self.allocator.report(report, self.now_s)
            if grant is not None:
                self.grants.append((report.router, grant))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), again=st.booleans())
    def follow(self, data, again):
        pair = data.draw(st.sampled_from(self.grants))
        if not again:
            self.grants.remove(pair)
        if pair[0] in self.leases:
            self.leases[pair[0]].follow(pair[1])

    @rule(seconds=st.sampled_from([0.01, 0.5, 7.0, 31.0, 61.0]))
    def wait(self, seconds):
        self.now_s += seconds

    @rule()
    def come(self):
        name = str(self.names)
        self.names += 1
        self.buckets[name] = Bucket(self.limit)
        self.leases[name] = Lease(name, self.buckets[name], 0)

    @precondition(lambda self: len(self.leases) > 1)
    @rule(data=st.data())
    def go(self, data):
        name = data.draw(st.sampled_from(sorted(self.leases)))
        del self.leases[name]
        self.allocator.remove(name, self.now_s)

    @rule()
    def exchange_all(self):
        for lease in self.leases.values():
            lease.follow(self.allocator.report(lease.report(self.now_s), self.now_s))

    @invariant()
    def no_minute_sees_more_than_the_limit(self):
        if not hasattr(self, "leases"):
            return
        while self.taken and self.taken[0][0] <= self.now_s - WINDOW_S:
            self.taken.popleft()
        assert sum(amount for _, amount in self.taken) <= self.limit
        may = sum(max(0, self.buckets[name].room(self.now_s)) for name in self.leases)
        assert may + sum(amount for _, amount in self.taken) <= self.limit
        assert sum(self.allocator.shares().values()) <= self.limit


Messages.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestMessages = Messages.TestCase
