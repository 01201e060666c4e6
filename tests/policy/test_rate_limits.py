"""Buckets and limiters over arbitrary interleavings: no minute above the limit, nothing reserved by halves."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steelyard.policy.rate_limits import MAX_USERS, Kind, Limiter, RateLimit, Reservation, Scope, Spent
from steelyard.policy.token_bucket import SLOT_S, WINDOW_S, Bucket

ENDPOINT, USER, GROUP = Scope


def one_request(input_tokens=0, output_tokens=0, mmu=0):
    return (1, input_tokens, output_tokens, mmu)


class BucketLife(RuleBasedStateMachine):
    """Takes that fit, credits, and a clock that also jumps back, beside a list of what was taken when."""

    def __init__(self):
        super().__init__()
        self.bucket = Bucket(100)
        self.now_s = self.latest_s = 5000.0
        self.taken = []  # [time, amount, slot]

    @rule(amount=st.integers(0, 60))
    def ask(self, amount):
        room = self.bucket.room(self.now_s)
        assert 0 <= room <= 100
        fits = self.bucket.ask(amount, self.now_s)
        assert fits == (amount <= room)
        if fits:
            slot = self.bucket.take(amount, self.now_s)
            assert self.bucket.room(self.now_s) == room - amount
            self.taken.append([self.now_s, amount, slot])

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data):
        entry = data.draw(st.sampled_from(self.taken))
        amount = data.draw(st.integers(0, entry[1]))
        before = self.bucket.taken
        self.bucket.give_back(amount, entry[2])
        assert before - amount <= self.bucket.taken <= before
        entry[1] -= amount

    @rule(seconds=st.sampled_from([0.0, 0.2, 3.0, 29.0, 59.9, 200.0]))
    def wait(self, seconds):
        self.now_s += seconds

    @rule(seconds=st.sampled_from([0.1, 10.0, 59.0, 1000.0, 4000.0]))
    def jump_back(self, seconds):
        room = self.bucket.room(self.now_s)
        self.now_s = max(0.0, self.now_s - seconds)
        assert self.bucket.room(self.now_s) <= room
        for entry in self.taken:  # in real time nothing has passed
            entry[0] -= seconds

    @rule(amount=st.integers(1, 150))
    def when_there_is_room(self, amount):
        room_in_s = self.bucket.room_in_s(amount, self.now_s)
        assert (room_in_s is None) == (amount > 100)
        if room_in_s:
            assert room_in_s > 0
            # a bucket of the same content, told that so much time has passed
            copy = Bucket(100)
            copy._by_slot, copy._slot = dict(self.bucket._by_slot), self.bucket._slot
            copy.taken = self.bucket.taken
            at_s = max(self.now_s, self.bucket._slot * SLOT_S)
            assert copy.room(at_s + room_in_s - 0.01) < amount
            assert copy.room(at_s + room_in_s + 0.001) >= amount

    @invariant()
    def no_minute_sees_more_than_the_limit_and_memory_is_bounded(self):
        window = [amount for at_s, amount, _ in self.taken if at_s > self.now_s - WINDOW_S]
        assert sum(window) <= self.bucket.taken <= 100
        assert self.bucket.taken == sum(self.bucket._by_slot.values())
        assert len(self.bucket._by_slot) <= WINDOW_S / SLOT_S + 1


BucketLife.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestBucketLife = BucketLife.TestCase


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 40)), max_size=120))
def test_what_was_taken_comes_back_a_minute_later_and_not_before(steps):
    bucket, window, now_s = Bucket(100), deque(), 1234.5
    for gap_s, amount in steps:
        now_s += gap_s
        while window and window[0][0] <= now_s - WINDOW_S - SLOT_S:
            window.popleft()
        room = bucket.room(now_s)
        assert room >= 100 - sum(amount for _, amount in window)
        if bucket.ask(amount, now_s):
            bucket.take(amount, now_s)
            window.append((now_s, amount))
        assert sum(amount for at_s, amount in window if at_s > now_s - WINDOW_S) <= 100


def test_a_debt_is_paid_before_anything_is_let_in():
    bucket = Bucket(100)
    bucket.take(250, 0.0)
    assert bucket.room(30.0) == -150
    assert not bucket.ask(0, 30.0)
    assert bucket.room(60.5) == 100


def test_all_of_a_limit_may_be_used_at_once_and_then_comes_back_at_once():
    limiter = Limiter([RateLimit(Kind.REQUESTS, ENDPOINT, 3)])
    for _ in range(3):
        assert isinstance(limiter.reserve("u", (), one_request(), 10.0), Reservation)
    spent = limiter.reserve("u", (), one_request(), 20.0)
    assert isinstance(spent, Spent)
    assert 50.0 <= spent.retry_after_s <= 50.5
    assert spent.reason == "The limit of 3 requests per minute of the endpoint is spent."
    assert isinstance(limiter.reserve("u", (), one_request(), 20.0 + spent.retry_after_s), Reservation)


LIMITS = [
    RateLimit(Kind.REQUESTS, ENDPOINT, 20),
    RateLimit(Kind.OUTPUT_TOKENS, ENDPOINT, 300),
    RateLimit(Kind.REQUESTS, USER, 8),
    RateLimit(Kind.INPUT_TOKENS, USER, 100),
    RateLimit(Kind.INPUT_TOKENS, USER, 250, "vip"),
    RateLimit(Kind.MMU, GROUP, 5000, "g"),
    RateLimit(Kind.REQUESTS, GROUP, 5, "h"),
]
MEMBERS = {"vip": ("g",), "a": ("g", "h"), "b": ("h",), "c": ()}


class LimiterLife(RuleBasedStateMachine):
    """Reservations and settlements of several users in any order, beside a plain sum of all that holds."""

    def __init__(self):
        super().__init__()
        self.limiter = Limiter(LIMITS)
        self.open, self.charges = [], []  # charges: [time, user, amounts]
        self.now_s = 1000.0

    def _buckets(self):
        for limit in LIMITS:
            users = [limit.principal] if limit.principal else ["a", "b", "c"]
            for who in users if limit.scope is USER else [limit.principal]:
                bucket = self.limiter.bucket(limit.kind, limit.scope, who)
                if bucket is not None:
                    yield limit, who, bucket

    def _levels(self):
        return {(limit, who): bucket.room(self.now_s) for limit, who, bucket in self._buckets()}

    @rule(
        user=st.sampled_from(sorted(MEMBERS)),
        input_tokens=st.integers(0, 120),
        output_tokens=st.integers(0, 150),
        mmu=st.integers(0, 3000),
    )
    def reserve(self, user, input_tokens, output_tokens, mmu):
        amounts = one_request(input_tokens, output_tokens, mmu)
        before = self._levels()
        outcome = self.limiter.reserve(user, MEMBERS[user], amounts, self.now_s)
        after = self._levels()
        if isinstance(outcome, Spent):
            assert {key: after[key] for key in before} == before  # nothing reserved by halves
            limit = outcome.limit
            assert limit.principal in {"", user, *MEMBERS[user]}
            assert amounts[limit.kind] > after[limit, "" if limit.scope is ENDPOINT else limit.principal or user]
            assert (outcome.retry_after_s is None) == (amounts[limit.kind] > limit.per_minute)
            assert outcome.retry_after_s is None or 0 < outcome.retry_after_s <= WINDOW_S + SLOT_S
            assert outcome.reason
        else:
            charge = [self.now_s, user, amounts]
            self.open.append((outcome, charge))
            self.charges.append(charge)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), part=st.floats(0, 1))
    def settle_for_less(self, data, part):
        reservation, charge = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        used = tuple(int(amount * part) for amount in charge[2])
        reservation.settle(used, self.now_s)
        levels = self._levels()
        reservation.settle((0, 0, 0, 0), self.now_s)
        reservation.cancel(self.now_s)
        assert self._levels() == levels
        charge[2] = used

    @rule(seconds=st.sampled_from([0.1, 5.0, 25.0, 61.0]))
    def wait(self, seconds):
        self.now_s += seconds

    @rule()
    def replace_by_the_same(self):
        before = self._levels()
        self.limiter.replace(LIMITS)
        assert self._levels() == before

    @invariant()
    def every_limit_holds_in_every_minute_and_nothing_is_lost(self):
        for limit, who, bucket in self._buckets():
            mine = [
                charge[2][limit.kind]
                for charge in self.charges
                if charge[0] > self.now_s - WINDOW_S
                and (
                    limit.scope is ENDPOINT
                    or (limit.scope is USER and charge[1] == who)
                    or (limit.scope is GROUP and who in MEMBERS[charge[1]])
                )
            ]
            assert sum(mine) <= limit.per_minute
            room = bucket.room(self.now_s)
            assert 0 <= room <= limit.per_minute - sum(mine)


LimiterLife.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestLimiterLife = LimiterLife.TestCase


def test_what_was_too_low_is_charged_when_it_is_settled_and_what_was_too_high_given_back():
    limiter = Limiter([RateLimit(Kind.OUTPUT_TOKENS, ENDPOINT, 100)])
    low = limiter.reserve("u", (), one_request(output_tokens=10), 0.0)
    high = limiter.reserve("u", (), one_request(output_tokens=90), 0.0)
    bucket = limiter.bucket(Kind.OUTPUT_TOKENS, ENDPOINT)
    assert bucket.room(1.0) == 0
    high.settle((1, 0, 20, 0), 1.0)
    assert bucket.room(1.0) == 70
    low.settle((1, 0, 150, 0), 30.0)
    assert bucket.room(30.0) == -70
    assert isinstance(limiter.reserve("u", (), one_request(), 31.0), Spent)  # in debt nothing goes, not even none
    assert bucket.room(61.0) == -40
    assert bucket.room(91.0) == 100


def test_what_nobody_expected_is_charged_too():
    limiter = Limiter([RateLimit(Kind.OUTPUT_TOKENS, ENDPOINT, 100)])
    limiter.reserve("u", (), one_request(), 0.0).settle((1, 0, 60, 0), 0.0)
    assert limiter.bucket(Kind.OUTPUT_TOKENS, ENDPOINT).room(0.0) == 40


def test_the_error_names_the_limit_that_keeps_it_out_longest():
    limiter = Limiter([RateLimit(Kind.REQUESTS, ENDPOINT, 1), RateLimit(Kind.MMU, USER, 2_500_000)])
    limiter.reserve("u", (), (1, 0, 0, 0), 0.0)
    limiter.reserve("v", (), (0, 0, 0, 2_500_000), 20.0)
    spent = limiter.reserve("v", (), (1, 0, 0, 1), 30.0)
    assert spent.reason == "The limit of 2,500 MU per minute per user is spent."
    spent = limiter.reserve("u", (), (1, 0, 0, 3_000_000), 30.0)
    assert spent.retry_after_s is None
    assert spent.reason == "It alone may take 3,000, which is above the limit of 2,500 MU per minute per user."


def test_users_have_a_bucket_each_and_groups_share_one():
    limiter = Limiter([RateLimit(Kind.REQUESTS, USER, 1), RateLimit(Kind.REQUESTS, GROUP, 3, "g")])
    assert [isinstance(limiter.reserve(user, ("g", "g", "x"), one_request(), 0.0), Spent) for user in "aabcd"] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_a_users_own_limit_replaces_the_one_for_every_user():
    limiter = Limiter([RateLimit(Kind.REQUESTS, USER, 1), RateLimit(Kind.REQUESTS, USER, 2, "vip")])
    assert limiter
    for user, admitted in (("vip", 2), ("b", 1)):
        for number in range(3):
            spent = isinstance(limiter.reserve(user, (), one_request(), 0.0), Spent)
            assert spent == (number >= admitted)


def test_memory_is_bounded_however_many_users_ask():
    limiter = Limiter([RateLimit(Kind.REQUESTS, USER, 1)])
    users = 2 * MAX_USERS
    for number in range(users):
        reservation = limiter.reserve(str(number), (), one_request(), 0.0)
        if number % 2:
            reservation.cancel(0.0)
    assert limiter.remembered == MAX_USERS
    assert isinstance(limiter.reserve(str(users - 2), (), one_request(), 0.0), Spent)


def test_new_limits_count_what_was_taken_before_them():
    limiter = Limiter([RateLimit(Kind.REQUESTS, ENDPOINT, 10), RateLimit(Kind.REQUESTS, USER, 10)])
    for _ in range(5):
        limiter.reserve("u", (), one_request(), 0.0)
    limiter.replace([RateLimit(Kind.REQUESTS, ENDPOINT, 7), RateLimit(Kind.REQUESTS, USER, 6, "u")])
    assert isinstance(limiter.reserve("u", (), one_request(), 0.0), Reservation)
    assert isinstance(limiter.reserve("u", (), one_request(), 0.0), Spent)
    assert isinstance(limiter.reserve("v", (), one_request(), 0.0), Reservation)
    assert isinstance(limiter.reserve("v", (), one_request(), 0.0), Spent)
    limiter.replace([])
    assert not limiter
    assert isinstance(limiter.reserve("u", (), one_request(), 0.0), Reservation)


def test_of_two_limits_for_the_same_the_lower_one_holds_and_nonsense_is_refused():
    limiter = Limiter([RateLimit(Kind.REQUESTS, ENDPOINT, 5), RateLimit(Kind.REQUESTS, ENDPOINT, 2)])
    assert limiter.bucket(Kind.REQUESTS, ENDPOINT).limit == 2
    with pytest.raises(ValueError, match="at least 1"):
        Limiter([RateLimit(Kind.REQUESTS, ENDPOINT, 0)])
    with pytest.raises(ValueError, match="name the group"):
        Limiter([RateLimit(Kind.REQUESTS, GROUP, 5)])
