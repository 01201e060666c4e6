"""The queue over arbitrary interleavings: nothing lost, nothing twice, bounds and priorities kept, memory bounded."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.policy import fair_share
from steelyard.policy.fair_queue import MAX_GIVING_WAY, FairQueue, Full
from steelyard.policy.lazy_heap import LazyHeap
from steelyard.policy.waiting import Bounds, Load, Place, Priority, Standing

ROOMY = Bounds(requests=10**6, mmu=10**12, body_bytes=10**12)
PROBE, INTERACTIVE, BATCH = Priority
TENANTS = st.sampled_from("abcdef")
PRIORITIES = st.sampled_from(list(Priority))


def place(item=None, tenant="a", priority=INTERACTIVE, cost_mmu=1, body_bytes=0, latest_start_s=math.inf, weight=1.0):
    return Place(item, tenant, priority, cost_mmu, body_bytes, latest_start_s, weight)


def drain(queue):
    return [queue.next().item for _ in range(len(queue))]


class QueueLife(RuleBasedStateMachine):
    """Whatever happens to a queue, beside the plain lists of what should be where."""

    @initialize(requests=st.integers(1, 12), mmu=st.integers(1, 100), body_bytes=st.integers(1, 100))
    def open(self, requests, mmu, body_bytes):
        self.queue = FairQueue(Bounds(requests, mmu, body_bytes))
        self.waiting, self.taken, self.out = [], [], []
        self.number = 0
        self.now_s = 0.0
        self.beyond = False  # something came regardless of the bounds
        self.virtual = [0.0] * 3

    def _new(self, tenant, priority, cost_mmu, body_bytes, start_in_s):
        self.number += 1
        return place(self.number, tenant, priority, cost_mmu, body_bytes, self.now_s + start_in_s)

    @rule(
        tenant=TENANTS,
        priority=PRIORITIES,
        cost_mmu=st.integers(0, 40),
        body_bytes=st.integers(0, 40),
        start_in_s=st.sampled_from([0.0, 1.0, 5.0, math.inf]),
    )
    def offer(self, tenant, priority, cost_mmu, body_bytes, start_in_s):
        new = self._new(tenant, priority, cost_mmu, body_bytes, start_in_s)
        heaviest, back = self._hefts(priority), self.came_back
        offer = self.queue.offer(new)
        for victim in offer.gave_way:
            assert victim.standing is Standing.DISPLACED
            assert victim.priority > priority or (victim.priority == priority and victim.tenant != tenant)
            assert victim.item not in back
            self.waiting.remove(victim)
            self.out.append(victim)
        if offer.full is None:
            self.waiting.append(new)
        else:
            assert not offer.gave_way
            assert new.standing is Standing.NEW
        peers = {victim.tenant for victim in offer.gave_way if victim.priority == priority}
        assert len(peers) <= 1
        for peer in peers:
            assert heaviest[peer] == max(heaviest.values())
            now = self._hefts(priority)
            assert now.get(peer, 0.0) >= now[tenant]  # who gave way still has no less than who came

    def _hefts(self, priority):
        bounds, loads = self.queue.bounds, {}
        for one in self.waiting:
            if one.priority == priority and one.item not in self.came_back:
                loads.setdefault(one.tenant, Load()).add(one.cost_mmu, one.body_bytes)
        return {tenant: bounds.share(load) for tenant, load in loads.items()}

    @property
    def came_back(self):
        return {one.item for one in self.waiting if one.turn}

    @rule(tenant=TENANTS, priority=PRIORITIES, cost_mmu=st.integers(1, 40))
    def join_regardless(self, tenant, priority, cost_mmu):
        new = self._new(tenant, priority, cost_mmu, 1, math.inf)
        self.queue.join(new)
        self.waiting.append(new)
        self.beyond = True

    @rule(tenant=TENANTS, priority=PRIORITIES, cost_mmu=st.integers(1, 40))
    def pass_by(self, tenant, priority, cost_mmu):
        new = self._new(tenant, priority, cost_mmu, 1, math.inf)
        self.queue.pass_by(new)
        self.taken.append(new)

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self):
        first = self.queue.first()
        taken = self.queue.next()
        assert taken is first
        assert taken.standing is Standing.TAKEN
        assert taken.priority == min(one.priority for one in self.waiting)
        back = [one for one in self.waiting if one.priority == taken.priority and one.item in self.came_back]
        mine = [one for one in self.waiting if (one.priority, one.tenant) == (taken.priority, taken.tenant)]
        assert taken is (min(back, key=lambda one: one.turn) if back else mine[0])
        self.waiting.remove(taken)
        self.taken.append(taken)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        leaver = data.draw(st.sampled_from(self.waiting))
        assert self.queue.leave(leaver)
        assert not self.queue.leave(leaver)
        assert leaver.standing is Standing.LEFT
        self.waiting.remove(leaver)
        self.out.append(leaver)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def come_back(self, data):
        back = data.draw(st.sampled_from(self.taken))
        tag = back.tag
        self.queue.rejoin(back)
        assert back.tag == tag
        self.taken.remove(back)
        self.waiting.append(back)
        self.beyond = True

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), settled_mmu=st.integers(0, 80))
    def settle(self, data, settled_mmu):
        done = data.draw(st.sampled_from(self.taken))
        self.queue.settle(done, settled_mmu)
        self.queue.settle(done, settled_mmu)
        self.taken.remove(done)
        self.out.append(done)

    @rule(seconds=st.floats(0, 4))
    def pass_time(self, seconds):
        self.now_s += seconds
        dropped = self.queue.drop_hopeless(self.now_s)
        assert {one.item for one in dropped} == {one.item for one in self.waiting if one.latest_start_s < self.now_s}
        for one in dropped:
            assert one.standing is Standing.HOPELESS
            self.waiting.remove(one)
            self.out.append(one)

    @rule(requests=st.integers(1, 12), mmu=st.integers(1, 100), body_bytes=st.integers(1, 100))
    def change_the_bounds(self, requests, mmu, body_bytes):
        self.queue.set_bounds(Bounds(requests, mmu, body_bytes))
        self.beyond = True

    @precondition(lambda self: not self.waiting)
    @rule()
    def nothing_waits(self):
        assert not self.queue
        assert self.queue.first() is None
        with pytest.raises(IndexError):
            self.queue.next()
        self.beyond = False

    @invariant()
    def nothing_is_lost_and_sums_are_exact(self):
        queue = self.queue
        assert len(queue) == len(self.waiting)
        assert bool(queue) == bool(self.waiting)
        assert all(one.standing is Standing.WAITING for one in self.waiting)
        assert all(one.standing not in {Standing.WAITING, Standing.TAKEN} for one in self.out)
        for priority in Priority:
            of_class = [one for one in self.waiting if one.priority == priority]
            load = queue.waiting(priority)
            assert load.requests == len(of_class)
            assert load.mmu == sum(one.cost_mmu for one in of_class)
            assert load.body_bytes == sum(one.body_bytes for one in of_class)
            above = [one for one in self.waiting if one.priority <= priority]
            assert queue.ahead(priority).mmu == sum(one.cost_mmu for one in above)

    @invariant()
    def bounds_hold(self):
        if not self.beyond:
            load, bounds = self.queue.load, self.queue.bounds
            assert load.requests <= bounds.requests
            assert load.body_bytes <= bounds.body_bytes
            assert load.mmu <= bounds.mmu or load.requests == 1

    @invariant()
    def memory_is_bounded(self):
        queue = self.queue
        assert queue._due.length <= 2 * len(self.waiting) + 17
        for share in queue._classes:
            for heap in (share._order, share._returned, share._hefts):
                assert heap.length <= 2 * len(self.waiting) + 17

    @invariant()
    def virtual_time_never_falls(self):
        now = [share.now for share in self.queue._classes]
        assert all(after >= before for after, before in zip(now, self.virtual, strict=True))
        self.virtual = now

    def teardown(self):
        if not hasattr(self, "queue"):
            return
        left = sorted(one.item for one in self.waiting)
        assert sorted(drain(self.queue)) == left
        assert (self.queue.load.requests, self.queue.load.mmu, self.queue.load.body_bytes) == (0, 0, 0)


QueueLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueLife = QueueLife.TestCase


# --- fair shares


COSTS = st.integers(1, 50)
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0])
STEPS = st.lists(st.one_of(st.none(), st.tuples(st.sampled_from("abc"), COSTS)), min_size=10, max_size=80)


@given(STEPS, st.fixed_dictionaries(dict.fromkeys("abc", WEIGHTS)))
def test_two_tenants_that_both_wait_get_the_same_per_weight_within_one_request_of_each(steps, weights):
    """The bound of Goyal et al. (theorem 1) over every interval of every run. A step of None takes one."""
    queue = FairQueue(ROOMY)
    waiting = dict.fromkeys("abc", 0)
    turns = []  # what was taken, and who waited then
    for step in steps:
        if step is not None:
            tenant, cost_mmu = step
            queue.join(place(tenant=tenant, cost_mmu=cost_mmu, weight=weights[tenant]))
            waiting[tenant] += 1
        elif queue:
            both = {name for name, count in waiting.items() if count}
            taken = queue.next()
            waiting[taken.tenant] -= 1
            turns.append((taken.tenant, taken.cost_mmu, both))
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        _check_every_interval(turns, one, other, weights)


def _check_every_interval(turns, one, other, weights):
    dearest = {name: max((cost for tenant, cost, _ in turns if tenant == name), default=0) for name in (one, other)}
    allowed = sum(dearest[name] / weights[name] for name in (one, other)) + 1e-6
    for begin in range(len(turns)):
        ahead = 0.0
        for tenant, cost_mmu, both in turns[begin:]:
            if not {one, other} <= both:
                break
            if tenant == one:
                ahead += cost_mmu / weights[one]
            elif tenant == other:
                ahead -= cost_mmu / weights[other]
            assert abs(ahead) <= allowed


def test_shares_follow_weights():
    queue = FairQueue(ROOMY)
    for number in range(400):
        queue.join(place(tenant="light", cost_mmu=10, weight=1.0))
        queue.join(place(number, tenant="heavy", cost_mmu=10, weight=3.0))
    taken = [queue.next().tenant for _ in range(400)]
    assert taken.count("heavy") == 300


def test_estimates_that_are_wrong_for_one_tenant_are_made_up_for_when_they_settle():
    queue = FairQueue(ROOMY)
    for _ in range(2000):
        queue.join(place(tenant="talks more than it said", cost_mmu=10))
        queue.join(place(tenant="as it said", cost_mmu=10))
        queue.join(place(tenant="says the most it might", cost_mmu=100))
    worked = dict.fromkeys(("talks more than it said", "as it said", "says the most it might"), 0)
    truth = {"talks more than it said": 100, "as it said": 10, "says the most it might": 10}
    flying = []
    while sum(worked.values()) < 15_000:
        flying.append(queue.next())
        if len(flying) == 4:  # so many replicas
            done = flying.pop(0)
            queue.settle(done, truth[done.tenant])
            worked[done.tenant] += truth[done.tenant]
    assert max(worked.values()) - min(worked.values()) <= 2 * 100 + 3 * 100


def test_a_credit_for_what_is_long_past_is_no_credit_now():
    queue = FairQueue(ROOMY)
    queue.join(place("old", tenant="a", cost_mmu=1000))
    old = queue.next()
    for _ in range(20):
        queue.join(place(tenant="b", cost_mmu=100))
    for _ in range(20):
        queue.next()
    queue.join(place("a1", tenant="a", cost_mmu=100))
    queue.join(place("a2", tenant="a", cost_mmu=100))
    queue.join(place("b1", tenant="b", cost_mmu=100))
    queue.settle(old, 0)
    assert drain(queue) == ["a1", "b1", "a2"]
    assert queue._classes[INTERACTIVE].now >= 1900


def test_who_leaves_before_its_turn_costs_its_tenant_nothing():
    queue = FairQueue(ROOMY)
    leavers = [place(tenant="a", cost_mmu=1000) for _ in range(50)]
    for leaver in leavers:
        queue.join(leaver)
    queue.join(place("a", tenant="a", cost_mmu=1))
    queue.join(place("b1", tenant="b", cost_mmu=1))
    queue.join(place("b2", tenant="b", cost_mmu=1))
    for leaver in leavers:
        queue.leave(leaver)
    assert drain(queue) == ["a", "b1", "b2"]


def test_who_comes_back_goes_before_all_that_were_behind_it_and_is_not_charged_again():
    queue = FairQueue(ROOMY)
    for number in range(4):
        queue.join(place(f"a{number}", tenant="a", cost_mmu=10))
        queue.join(place(f"b{number}", tenant="b", cost_mmu=10))
    first, second = queue.next(), queue.next()
    queue.rejoin(second)
    queue.rejoin(first)
    assert drain(queue) == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]


def test_who_goes_without_having_waited_is_charged_and_may_come_back_before_all_that_wait():
    queue = FairQueue(ROOMY)
    direct = place("direct", tenant="a", cost_mmu=100)
    queue.pass_by(direct)
    for number in range(2):
        queue.join(place(f"a{number}", tenant="a", cost_mmu=10))
    for number in range(2):
        queue.join(place(f"b{number}", tenant="b", cost_mmu=10))
    queue.rejoin(direct)
    assert drain(queue) == ["direct", "b0", "b1", "a0", "a1"]
    with pytest.raises(ValueError, match="cannot pass by"):
        queue.pass_by(direct)


def test_a_single_tenant_is_served_first_come_first_served():
    queue = FairQueue(ROOMY)
    for number in range(100):
        queue.join(place(number, cost_mmu=1 + number % 7))
    assert drain(queue) == list(range(100))


def test_a_busy_period_that_ended_is_forgotten():
    queue = FairQueue(ROOMY)
    for _ in range(3):
        queue.join(place(tenant="a", cost_mmu=1000))
    for taken in [queue.next() for _ in range(3)]:
        queue.settle(taken, 5000)
    assert all(share.remembered == 0 for share in queue._classes)
    for number in range(3):
        queue.join(place(f"b{number}", tenant="b", cost_mmu=10))
        queue.join(place(f"a{number}", tenant="a", cost_mmu=10))
    assert drain(queue) == ["b0", "a0", "b1", "a1", "b2", "a2"]


def test_ever_new_tenants_take_bounded_memory(monkeypatch):
    queue = FairQueue(ROOMY)
    queue.join(place("last", tenant="steady", cost_mmu=1))
    queue.join(place(tenant="steady", cost_mmu=1))
    for number in range(5 * fair_share.MAX_IDLE_TENANTS):
        queue.join(place(tenant=str(number), cost_mmu=1000))
        queue.next()
    assert queue._classes[INTERACTIVE].remembered <= fair_share.MAX_IDLE_TENANTS + 2


# --- classes, bounds and giving way


def test_a_full_batch_class_never_keeps_interactive_out_or_waiting():
    queue = FairQueue(Bounds(requests=10, mmu=1000, body_bytes=1000))
    for number in range(10):
        queue.offer(place(f"batch {number}", priority=BATCH, cost_mmu=100, body_bytes=100))
    for number in range(10):
        offer = queue.offer(place(number, priority=INTERACTIVE, cost_mmu=100, body_bytes=100))
        assert offer.full is None
        assert [victim.item for victim in offer.gave_way] == [f"batch {9 - number}"]
        assert queue.first().item == 0
    assert queue.offer(place(priority=INTERACTIVE)).full is Full.REQUESTS
    assert queue.offer(place(priority=BATCH)).full is Full.REQUESTS
    assert queue.offer(place(priority=PROBE)).full is None


def test_interactive_takes_as_much_room_from_batch_as_it_needs_and_none_in_vain():
    queue = FairQueue(Bounds(requests=100, mmu=100, body_bytes=100))
    queue.offer(place("firm", priority=INTERACTIVE, cost_mmu=10, body_bytes=50))
    for number in range(5):
        queue.offer(place(number, priority=BATCH, cost_mmu=10, body_bytes=10))
    assert queue.offer(place(priority=INTERACTIVE, body_bytes=51)).full is Full.BODY_BYTES
    assert len(queue) == 6
    offer = queue.offer(place(priority=INTERACTIVE, body_bytes=25))
    assert [victim.item for victim in offer.gave_way] == [4, 3, 2]


def test_who_floods_the_queue_fills_only_its_own_share_of_it():
    queue = FairQueue(Bounds(requests=10, mmu=10**9, body_bytes=10**9))
    for number in range(50):
        queue.offer(place(number, tenant="flood"))
    for number in range(5):
        offer = queue.offer(place(tenant="quiet"))
        assert offer.full is None
        assert [victim.item for victim in offer.gave_way] == [9 - number]
    assert queue.offer(place(tenant="quiet")).full is Full.REQUESTS
    assert queue.offer(place(tenant="flood")).full is Full.REQUESTS


@pytest.mark.parametrize("resource", ["requests", "mmu", "body_bytes"])
def test_the_flood_gives_way_whatever_it_floods(resource):
    one = {"requests": (1, 1), "mmu": (100, 1), "body_bytes": (1, 100)}[resource]
    bounds = {"requests": 10**6, "mmu": 10**6, "body_bytes": 10**6} | {resource: 10 if resource == "requests" else 1000}
    queue = FairQueue(Bounds(**bounds))
    for _ in range(20):
        queue.offer(place(tenant="flood", cost_mmu=one[0], body_bytes=one[1]))
    offer = queue.offer(place(tenant="quiet", cost_mmu=one[0], body_bytes=one[1]))
    assert offer.full is None
    assert {victim.tenant for victim in offer.gave_way} == {"flood"}


def test_one_request_sends_away_only_so_many_of_its_own_class():
    queue = FairQueue(Bounds(requests=10**6, mmu=100, body_bytes=100))
    for _ in range(100):
        queue.offer(place(tenant="many small", cost_mmu=1))
    assert queue.offer(place(tenant="large", cost_mmu=MAX_GIVING_WAY + 1)).full is Full.MMU
    assert len(queue) == 100
    assert len(queue.offer(place(tenant="large", cost_mmu=MAX_GIVING_WAY)).gave_way) == MAX_GIVING_WAY


def test_who_came_back_never_gives_way():
    queue = FairQueue(Bounds(requests=1, mmu=100, body_bytes=100))
    queue.offer(place("back", priority=BATCH))
    queue.rejoin(queue.next())
    assert queue.offer(place(priority=INTERACTIVE)).full is Full.REQUESTS
    assert queue.offer(place(priority=BATCH, tenant="b")).full is Full.REQUESTS
    assert drain(queue) == ["back"]


def test_one_that_is_heavier_than_the_bound_waits_alone():
    queue = FairQueue(Bounds(requests=10, mmu=100, body_bytes=100))
    queue.offer(place("small"))
    assert queue.offer(place("heavy", tenant="b", cost_mmu=1000)).full is Full.MMU
    drain(queue)
    assert queue.offer(place("heavy", cost_mmu=1000)).full is None
    assert queue.offer(place("small")).full is Full.MMU
    queue.offer(place("more", priority=PROBE))
    assert drain(queue) == ["more"]


def test_the_first_in_line_is_not_overtaken():
    queue = FairQueue(ROOMY)
    queue.join(place("large", tenant="a", cost_mmu=10**6))
    queue.join(place("small", tenant="b"))
    queue.join(place("batch", tenant="c", priority=BATCH))
    assert [queue.first().item for _ in range(3)] == ["large"] * 3  # as long as no replica takes it


@pytest.mark.parametrize("standing", ["waiting", "taken"])
def test_a_place_stands_in_one_line_at_most(standing):
    queue = FairQueue(ROOMY)
    one = place()
    queue.join(one)
    if standing == "taken":
        queue.next()
    for act in (queue.join, queue.offer, FairQueue(ROOMY).join):
        with pytest.raises(ValueError, match="cannot join"):
            act(one)
    if standing == "waiting":
        with pytest.raises(ValueError, match="cannot come back"):
            queue.rejoin(one)
    else:
        queue.settle(one, 0)
        FairQueue(ROOMY).join(one)


def test_weights_and_bounds_are_above_zero():
    for weight in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="weight"):
            place(weight=weight)
    for bounds in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="nothing wait"):
            Bounds(*bounds)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=200))
def test_the_heap_gives_the_least_of_what_lives_in_the_order_of_coming(steps):
    heap, lives = LazyHeap(), []
    for adds, key in steps:
        if adds or not lives:
            lives.append((key, heap.push(key, f"{key}")))
        else:
            heap.remove(lives.pop(key % len(lives))[1])
        assert heap.first() == (f"{min(lives)[0]}" if lives else None)
        assert len(heap) == len(lives)
        assert heap.length <= 2 * len(lives) + 17
