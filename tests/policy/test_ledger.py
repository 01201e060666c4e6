"""The ledger over arbitrary interleavings: never negative, settled once, zero at rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steelyard.policy.ledger import Ledger

REPLICAS = ("a", "b", "c")


class LedgerLife(RuleBasedStateMachine):
    """Charges, progress, settlements (also repeated), and replicas that leave and come back, in any order."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()
        self.open = []  # (entry, what should remain)
        self.closed = []
        self.charged = 0

    @rule(replica=st.sampled_from(REPLICAS), amount_mu=st.integers(0, 10**6))
    def charge(self, replica, amount_mu):
        account = self.ledger.account(replica)
        self.open.append([self.ledger.charge(account, amount_mu), amount_mu])
        self.charged += amount_mu

    @precondition(lambda self: self.open)
    @rule(data=st.data(), done_mu=st.integers(-5, 10**6))
    def progress(self, data, done_mu):
        pair = data.draw(st.sampled_from(self.open))
        pair[0].progress(done_mu)
        pair[1] = max(0, pair[1] - max(0, done_mu))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data):
        pair = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        assert pair[0].settle()
        self.closed.append(pair[0])

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def settle_or_progress_again(self, data):
        entry = data.draw(st.sampled_from(self.closed))
        assert not entry.settle()
        entry.progress(7)

    @rule(replica=st.sampled_from(REPLICAS))
    def retire(self, replica):
        self.ledger.retire(replica)

    @invariant()
    def sums_are_exact_and_never_negative(self):
        ledger = self.ledger
        assert ledger.in_flight == len(self.open)
        assert ledger.outstanding_mu == sum(remaining for _, remaining in self.open)
        assert ledger.charged_total_mu == self.charged
        open_mu = sum(entry.charged_mu for entry, _ in self.open)
        assert ledger.charged_total_mu - ledger.settled_total_mu == open_mu
        assert all(count >= 0 for count in ledger.by_replica().values())
        assert sum(ledger.by_replica().values()) == len(self.open)

    def teardown(self):
        for entry, _ in self.open:
            entry.settle()
        assert self.ledger.in_flight == 0
        assert self.ledger.outstanding_mu == 0
        assert self.ledger.charged_total_mu == self.ledger.settled_total_mu
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
    assert ledger.in_flight == ledger.outstanding_mu == 0


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
