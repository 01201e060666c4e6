"""The ledger over arbitrary interleavings: never negative, settled once, zero at rest, whatever it really cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steelyard.policy.ledger import Ledger

REPLICAS = ("a", "b", "c")


class LedgerLife(RuleBasedStateMachine):
    """Charges that grow, progress, ends of every kind (also repeated), retries, replicas that leave: in any order."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()
        self.open = []  # (entry, what should remain)
        self.closed = []
        self.charged = self.known = self.actual = 0

    @rule(replica=st.sampled_from(REPLICAS), amount_mmu=st.integers(0, 10**6), answer_mmu=st.integers(0, 2 * 10**6))
    def charge(self, replica, amount_mmu, answer_mmu):
        account = self.ledger.account(replica)
        self.open.append([self.ledger.charge(account, amount_mmu, answer_mmu), amount_mmu])
        self.charged += amount_mmu

    @precondition(lambda self: self.open)
    @rule(data=st.data(), done_mmu=st.integers(-5, 10**6))
    def progress(self, data, done_mmu):
        pair = data.draw(st.sampled_from(self.open))
        pair[0].progress(done_mmu)
        pair[1] = max(0, pair[1] - max(0, done_mmu))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), amount_mmu=st.integers(-5, 2 * 10**6))
    def raise_to(self, data, amount_mmu):
        """Its output grew longer than was estimated (or did not)."""
        pair = data.draw(st.sampled_from(self.open))
        more = max(0, amount_mmu - pair[0].charged_mmu)
        pair[0].raise_to(amount_mmu)
        pair[1] += more
        self.charged += more

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def begin_answer(self, data):
        entry = data.draw(st.sampled_from(self.open))[0]
        entry.begin_answer()
        assert entry.answering
        assert entry.answer_mmu == entry.remaining_mmu

    @precondition(lambda self: self.open)
    @rule(data=st.data(), actual_mmu=st.none() | st.integers(-5, 2 * 10**6))
    def settle(self, data, actual_mmu):
        """Completed, cancelled, timed out or dead: all end here."""
        self._close(data.draw(st.integers(0, len(self.open) - 1)), actual_mmu)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), replica=st.sampled_from(REPLICAS))
    def retry_elsewhere(self, data, replica):
        """The attempt failed; the request is charged anew, in whole, to another replica or the same."""
        index = data.draw(st.integers(0, len(self.open) - 1))
        amount_mmu = self.open[index][0].charged_mmu
        self._close(index, None)
        self.charge(replica, amount_mmu, amount_mmu // 3)

    @rule(replica=st.sampled_from(REPLICAS), data=st.data())
    def replica_dies(self, replica, data):
        """It leaves the snapshot, and what it held fails in any order, before or after that."""
        before = data.draw(st.booleans())
        if before:
            self.ledger.retire(replica)
        for index in reversed(range(len(self.open))):
            if self.open[index][0].account.replica == replica:
                self._close(index, None)
        if not before:
            self.ledger.retire(replica)
        assert replica not in self.ledger.by_replica()

    @precondition(lambda self: self.closed)
    @rule(data=st.data(), actual_mmu=st.none() | st.integers(0, 10**6))
    def whatever_comes_after_settling_changes_nothing(self, data, actual_mmu):
        entry = data.draw(st.sampled_from(self.closed))
        before = (entry.charged_mmu, entry.actual_mmu)
        entry.progress(7)
        entry.begin_answer()
        entry.raise_to(10**9)
        assert not entry.settle(actual_mmu)
        assert (entry.charged_mmu, entry.actual_mmu, entry.remaining_mmu) == (*before, 0)

    def _close(self, index, actual_mmu):
        entry, _ = self.open.pop(index)
        assert entry.settle(actual_mmu)
        self.closed.append(entry)
        if actual_mmu is not None and actual_mmu >= 0:
            self.known += entry.charged_mmu
            self.actual += actual_mmu

    @rule(replica=st.sampled_from(REPLICAS))
    def retire(self, replica):
        self.ledger.retire(replica)

    @invariant()
    def sums_are_exact_and_never_negative(self):
        ledger = self.ledger
        assert ledger.in_flight == len(self.open)
        assert ledger.outstanding_mmu == sum(remaining for _, remaining in self.open)
        assert ledger.charged_total_mmu == self.charged
        assert (ledger.known_total_mmu, ledger.actual_total_mmu) == (self.known, self.actual)
        assert all(entry.remaining_mmu == remaining for entry, remaining in self.open)
        open_mmu = sum(entry.charged_mmu for entry, _ in self.open)
        assert ledger.charged_total_mmu - ledger.settled_total_mmu == open_mmu
        for account in {entry.account for entry, _ in self.open}:
            here = [entry for entry, _ in self.open if entry.account is account]
            assert account.answering == sum(entry.answering for entry in here)
            assert account.answer_mmu == sum(entry.answer_mmu for entry in here)
            assert all(0 <= entry.answer_mmu <= entry.remaining_mmu for entry in here)
        assert all(count >= 0 for count in ledger.by_replica().values())
        assert sum(ledger.by_replica().values()) == len(self.open)

    def teardown(self):
        for entry, _ in self.open:
            entry.settle()
        assert self.ledger.in_flight == 0
        assert self.ledger.outstanding_mmu == 0
        assert all(entry.account.answering == entry.account.answer_mmu == 0 for entry in self.closed)
        assert self.ledger.charged_total_mmu == self.ledger.settled_total_mmu
        for replica in REPLICAS:
            self.ledger.retire(replica)
        assert self.ledger.by_replica() == {}


TestLedgerLife = LedgerLife.TestCase


@given(st.sampled_from([None, ValueError, KeyboardInterrupt]))
def test_a_with_block_settles_however_it_ends(error):
    ledger = Ledger()
    try:
        with ledger.charge(ledger.account("a"), 5) as entry:
            entry.progress(2)
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert ledger.in_flight == ledger.outstanding_mmu == 0


def test_a_negative_charge_is_refused():
    ledger = Ledger()
    with pytest.raises(ValueError, match="negative"):
        ledger.charge(ledger.account("a"), -1)
    assert ledger.in_flight == 0


def test_a_replica_that_left_keeps_its_account_until_its_last_entry_is_settled():
    ledger = Ledger()
    entry = ledger.charge(ledger.account("a"), 1)
    ledger.retire("a")
    assert ledger.by_replica() == {"a": 1}
    entry.settle()
    assert ledger.by_replica() == {}


def test_what_a_request_really_cost_is_kept_beside_what_was_charged():
    ledger = Ledger()
    account = ledger.account("a")
    cheaper, dearer, unknown = (ledger.charge(account, 100) for _ in range(3))
    cheaper.settle(40)
    dearer.raise_to(150)
    dearer.settle(170)
    unknown.settle()
    assert ledger.charged_total_mmu == ledger.settled_total_mmu == 350
    assert (ledger.known_total_mmu, ledger.actual_total_mmu) == (250, 210)
    assert (cheaper.actual_mmu, dearer.actual_mmu, unknown.actual_mmu) == (40, 170, None)


def test_a_charge_that_is_raised_after_all_of_it_was_worked_off_is_load_again():
    ledger = Ledger()
    entry = ledger.charge(ledger.account("a"), 100)
    entry.progress(130)
    assert ledger.outstanding_mmu == 0
    entry.raise_to(180)
    assert ledger.outstanding_mmu == 80
    entry.progress(30)
    entry.settle(180)
    assert ledger.outstanding_mmu == ledger.in_flight == 0
