"""Several routers under one limit: no minute sees more than it, whatever happens to messages, routers and control; and
hardly less under demand that never ends."""

from collections import deque
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.policy import lease_book, lease_holder
from steelyard.policy.lease_book import LeaseBook
from steelyard.policy.lease_holder import STOPPED_S
from steelyard.policy.token_bucket import WINDOW_S
from support.lease_fleet import Fleet, Node, limit_key

BEGIN_S = 1.0  # routers have joined


def demand(fleet, rng, shares, times_limit, until_s, amounts, key, at_s=BEGIN_S):
    """Poisson arrivals that sum to so many times the limit, split over the routers by `shares`."""
    mean = sum(amounts) / len(amounts)
    rate = times_limit * key.per_minute / WINDOW_S / mean
    while (at_s := at_s + rng.expovariate(rate)) < until_s:
        router = rng.choices(list(shares), list(shares.values()))[0]
        fleet.at(at_s, fleet.ask, router, key, rng.choice(amounts))


def skewed(routers, skew):
    return {router: skew**-router for router in range(routers)}


@pytest.mark.parametrize("limit", [600, 60_000])
@pytest.mark.parametrize("skew", [1, 1000])
@pytest.mark.parametrize("routers", [2, 4])
def test_no_minute_sees_more_than_the_limit_and_hardly_less_is_used(routers, skew, limit):
    rng, key = Random(routers * 1000 + skew), limit_key(limit)
    fleet = Fleet(routers, rng)
    demand(fleet, rng, skewed(routers, skew), 3, 241, [1] if limit == 600 else [40, 100, 600], key)
    fleet.run(241)
    assert fleet.fullest_minute() <= limit
    assert fleet.used(limit, 1, 241) >= 0.95


def test_who_sticks_to_one_router_gets_almost_the_whole_limit_within_two_seconds():
    rng, key = Random(7), limit_key(1000)
    fleet = Fleet(2, rng)
    for step in range(20_000):
        fleet.at(1.0 + step / 10_000, fleet.ask, 0, key, 1)
    fleet.run(3.0)
    assert 900 <= len(fleet.taken) <= 1000


def test_shares_follow_demand_that_moves():
    rng, key = Random(1), limit_key(6000)
    fleet = Fleet(4, rng)
    for turn in range(4):
        demand(fleet, rng, {turn: 1.0}, 1.5, (turn + 1) * 120, [1, 5, 20], key, turn * 120 + 1)
    fleet.run(480)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(6000, 1, 480) >= 0.95


@pytest.mark.parametrize("back_after_s", [0.5, 100.0])
def test_what_a_lost_router_had_goes_to_the_others_when_its_minute_is_over(back_after_s):
    rng, key = Random(2), limit_key(6000)
    fleet = Fleet(4, rng)
    demand(fleet, rng, skewed(4, 1.5), 3, 600, [1, 5, 20], key)
    fleet.at(200.0, fleet.kill, 0, back_after_s)
    fleet.run(600)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(6000, 300, 600) >= 0.95


@pytest.mark.parametrize("lost", [0.1, 0.4])
def test_messages_that_are_lost_or_late_do_no_harm(lost):
    rng, key = Random(3), limit_key(6000)
    fleet = Fleet(4, rng, lost=lost, delay_s=(0.0, 1.0))
    demand(fleet, rng, skewed(4, 10), 3, 420, [1, 5, 20], key, 15)
    fleet.run(420)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(6000, 60, 420) >= 0.93


@pytest.mark.parametrize("away_s", [1.0, 200.0])
def test_while_control_is_away_and_after_it_is_back_routers_go_on_with_what_they_have(away_s):
    rng, key = Random(4), limit_key(6000)
    fleet = Fleet(3, rng)
    demand(fleet, rng, skewed(3, 2), 3, 400, [1, 5, 20], key)
    fleet.at(100.0, fleet.restart_control, away_s)
    fleet.at(100.0 + away_s / 2, fleet.restart_control, away_s)
    fleet.run(400)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(6000, 1, 400) >= 0.95


def test_a_control_that_is_lost_with_a_router_sets_aside_what_that_had():
    rng, key = Random(15), limit_key(6000)
    fleet = Fleet(3, rng)
    demand(fleet, rng, skewed(3, 2), 3, 300, [1, 5, 20], key)
    fleet.at(100.0, fleet.kill, 0, 0.2)
    fleet.at(100.0, fleet.restart_control, 0.5)
    fleet.run(300)
    assert fleet.fullest_minute() <= 6000
    assert fleet.used(6000, 170, 300) >= 0.95


def test_demand_within_the_limit_is_hardly_ever_refused():
    rng, key = Random(5), limit_key(6000)
    fleet = Fleet(4, rng)
    demand(fleet, rng, skewed(4, 2), 0.7, 600, [1, 5, 20], key)
    fleet.run(600)
    assert fleet.refused <= 0.01 * len(fleet.taken)


def test_amounts_above_an_even_share_are_let_in_by_turns():
    rng, key = Random(6), limit_key(10_000)
    fleet = Fleet(4, rng)
    fleet.clients_come_back = True
    demand(fleet, rng, skewed(4, 1), 1.5, 900, [4000], key)
    fleet.run(900)
    assert fleet.fullest_minute() <= 10_000
    assert fleet.used(10_000, 120, 900) >= 0.6  # two of them fit into a minute: 0.8


def test_one_request_as_large_as_the_limit_is_let_in():
    rng, key = Random(9), limit_key(100)
    fleet = Fleet(2, rng)
    fleet.clients_come_back = True
    fleet.at(1.0, fleet.ask, 1, key, 100)
    fleet.run(10.0)
    assert [amount for _, amount in fleet.taken] == [100]


def test_a_router_that_control_does_not_answer_begins_with_its_even_part():
    rng, key = Random(10), limit_key(10)
    fleet = Fleet(2, rng)
    fleet.is_away = True
    for at_s in range(1, 20):
        fleet.at(float(at_s), fleet.ask, 0, key, 1)
    fleet.run(20)
    assert next(at_s for at_s, _ in fleet.taken) > lease_holder.ALONE_S
    assert len(fleet.taken) == 5


def test_who_stays_below_half_an_even_part_needs_no_messages():
    rng = Random(11)
    fleet = Fleet(2, rng)
    for number in range(2000):
        for _ in range(2):
            fleet.at(BEGIN_S + number / 1000, fleet.ask, number % 2, limit_key(10, f"user-{number}"), 1)
    fleet.run(5.0)
    assert (len(fleet.taken), fleet.refused) == (4000, 0)
    assert [len(node.holder) for node in fleet.nodes.values()] == [0, 0]
    assert len(fleet.book) == 0


def test_limits_that_nobody_uses_any_more_are_forgotten_and_even_again():
    rng = Random(12)
    fleet = Fleet(3, rng)
    keys = [limit_key(100, f"user-{number}") for number in range(20)]
    for key in keys:
        for step in range(90):
            fleet.at(BEGIN_S + step / 30, fleet.ask, 1, key, 1)
    fleet.run(10.0)
    assert len(fleet.book) == len(fleet.nodes[0].holder) == 20
    assert fleet.book.shares(keys[0])[1] > 90
    fleet.run(300.0)
    assert len(fleet.book) == 0
    assert [len(node.holder) for node in fleet.nodes.values()] == [0, 0, 0]
    assert fleet.book.shares(keys[0]) == {0: 34, 1: 33, 2: 33}
    assert {router: node.may_take(keys[0], 300.0) for router, node in fleet.nodes.items()} == {0: 34, 1: 33, 2: 33}


def test_memory_is_bounded_and_who_does_not_fit_keeps_the_even_part(monkeypatch):
    monkeypatch.setattr(lease_book, "MAX_LIMITS", 5)
    monkeypatch.setattr(lease_holder, "MAX_LEASES", 8)
    rng = Random(13)
    fleet = Fleet(2, rng)
    for number in range(20):
        for step in range(60):
            fleet.at(BEGIN_S + number + step / 30, fleet.ask, 0, limit_key(20, f"user-{number}"), 1)
    fleet.run(30.0)
    assert (len(fleet.book), len(fleet.nodes[0].holder), len(fleet.nodes[1].holder)) == (5, 8, 5)
    assert len(fleet.taken) == 5 * 20 + 15 * 10


def test_another_amount_is_another_limit_and_what_was_taken_still_counts():
    fleet = Fleet(2, Random(14))
    key = limit_key(100)
    for step in range(100):
        fleet.at(BEGIN_S + step / 50, fleet.ask, 0, key, 1)
    fleet.run(4.0)
    node = fleet.nodes[0]
    bucket = node.buckets.pop(key)
    assert bucket.taken > 90
    larger = limit_key(200)
    fleet.clients_come_back = True
    node.buckets[larger] = node.holder.bucket(larger, bucket)
    assert node.buckets[larger] is bucket
    for step in range(100):
        fleet.at(4.0 + step / 50, fleet.ask, 0, larger, 1)
    fleet.run(8.0)
    assert 185 <= bucket.taken <= 200


class Messages(RuleBasedStateMachine):
    """Any order of reports, answers, losses, repetitions, killed and stopped routers, and new controls: what may be
    taken never passes the limit, nor does what was taken in a minute. Only that a router which nobody answers begins
    with its even part is left out."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(lease_holder, "ALONE_S", float("inf"))

    def teardown(self):
        self.patch.undo()

    @initialize(limit=st.integers(1, 200), routers=st.integers(2, 4))
    def open(self, limit, routers):
        self.key, self.routers = limit_key(limit), routers
        self.book = LeaseBook(routers)
        self.nodes = {router: Node(router, routers) for router in range(routers)}
        self.reports, self.answers, self.taken = [], [], deque()
        self.now_s = 1.0
        self.exchange_all()

    def node(self, data):
        return self.nodes[data.draw(st.sampled_from(range(self.routers)))]

    def is_known(self, node):
        """Control knows what that router has of the limit."""
        member = self.book._members.get(node.router)
        if member is None or node.life != member.began or not self.book._is_complete:
            return False
        return self.key in self.book._allocators and node.router in self.book.shares(self.key)

    def make_report(self, node):
        """A router that was stopped for long notes that before it takes anything."""
        report = node.report(self.now_s)
        return node, (report.began, report.number), report

    @rule(data=st.data(), amount=st.integers(1, 80))
    def ask(self, data, amount):
        node = self.node(data)
        if node.reported_s is None or self.now_s - node.reported_s > STOPPED_S:
            self.make_report(node)
        if node.ask(self.key, amount, self.now_s):
            self.taken.append((self.now_s, amount, node))

    @rule(data=st.data())
    def report(self, data):
        self.reports.append(self.make_report(self.node(data)))

    @precondition(lambda self: self.reports)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data, again):
        entry = data.draw(st.sampled_from(self.reports))
        if not again:
            self.reports.remove(entry)
        node, asked_with, report = entry
        self.answers.append((node, asked_with, self.book.report(report, self.now_s)))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def follow(self, data):
        entry = data.draw(st.sampled_from(self.answers))
        self.answers.remove(entry)
        node, asked_with, answer = entry
        node.follow(asked_with, answer)

    @rule(seconds=st.sampled_from([0.01, 0.5, 4.0]))
    def wait(self, seconds):
        self.now_s += seconds

    @rule(data=st.data(), seconds=st.sampled_from([5, 17, 65]))
    def time_passes_while_one_may_be_stopped(self, data, seconds):
        stopped = self.node(data) if data.draw(st.booleans()) else None
        for _ in range(seconds):
            self.now_s += 1.0
            self.exchange(node for node in self.nodes.values() if node is not stopped)

    @rule(data=st.data())
    def kill(self, data):
        node = self.node(data)
        if not self.is_known(node):
            self.forget(node)
        self.now_s += 0.01
        self.nodes[node.router] = Node(node.router, self.routers)

    @rule()
    def restart_control(self):
        for node in {node for _, _, node in self.taken} - set(self.nodes.values()):
            self.forget(node)  # unless others know of the limit
        self.book = LeaseBook(self.routers)
        self.reports.clear()

    @rule()
    def exchange_all(self):
        for _ in range(3):
            self.now_s += 0.02
            self.exchange(self.nodes.values())

    def exchange(self, nodes):
        for node in nodes:
            _, asked_with, report = self.make_report(node)
            node.follow(asked_with, self.book.report(report, self.now_s))

    def forget(self, node):
        """Nobody knows what it took: documented as lost."""
        self.taken = deque(entry for entry in self.taken if entry[2] is not node)

    @invariant()
    def no_minute_sees_more_than_the_limit(self):
        if not hasattr(self, "nodes"):
            return
        while self.taken and self.taken[0][0] <= self.now_s - WINDOW_S:
            self.taken.popleft()
        taken = sum(amount for _, amount, _ in self.taken)
        awake = [n for n in self.nodes.values() if n.reported_s is not None and self.now_s - n.reported_s <= STOPPED_S]
        assert taken + sum(node.may_take(self.key, self.now_s) for node in awake) <= self.key.per_minute


Messages.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestMessages = Messages.TestCase
