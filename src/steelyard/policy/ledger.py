"""The ledger of load: who owes how much to which replica. The only place where a load figure changes.

**Inputs** A charge per attempt of a request: `amount_mu` (model units, a whole number ≥ 0, so that sums are exact),
then progress (`done_mu`, how much of it is worked off), then one settle.
**Parameters** None.
**Guarantees** An entry settles exactly once, however often and from however many paths `settle` is called. No figure
is ever negative. When no entry is open every figure is exactly zero and charged total = settled total.
**Trade-offs** Figures are this process's own; several routers each hold their own ledger.
**Failure modes** An entry that nobody settles stays as load for ever: owners hold it in a `with` block or settle it in
the one function that ends a request. A replica that left keeps its account until its last entry is settled.

The router's exchange opens and settles entries; routing reads accounts. Neither health nor metrics code can write.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Account:
    """Load of one replica: `in_flight` attempts, `outstanding_mu` of work that is charged and not yet done."""

    __slots__ = ("in_flight", "outstanding_mu", "replica", "retired")

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.in_flight = 0
        self.outstanding_mu = 0
        self.retired = False


class Entry:
    """One attempt's charge. Use as a context manager, or call `settle` from whatever ends the attempt."""

    __slots__ = ("_ledger", "account", "charged_mu", "remaining_mu", "settled")

    def __init__(self, ledger: Ledger, account: Account, amount_mu: int) -> None:
        self._ledger = ledger
        self.account = account
        self.charged_mu = amount_mu
        self.remaining_mu = amount_mu
        self.settled = False

    def progress(self, done_mu: int) -> None:
        """Work off `done_mu` more. More than was charged counts as all of it; after settling, nothing happens."""
        if self.settled or done_mu <= 0:
            return
        step_mu = min(done_mu, self.remaining_mu)
        self.remaining_mu -= step_mu
        self.account.outstanding_mu -= step_mu

    def settle(self) -> bool:
        """Close the entry. True the first time; later calls change nothing."""
        if self.settled:
            return False
        self.settled = True
        account = self.account
        account.in_flight -= 1
        account.outstanding_mu -= self.remaining_mu
        self.remaining_mu = 0
        self._ledger.settled_total_mu += self.charged_mu
        if account.retired and not account.in_flight:
            self._ledger.drop(account)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.settle()


class Ledger:
    """All accounts of one router."""

    __slots__ = ("_accounts", "charged_total_mu", "settled_total_mu")

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self.charged_total_mu = 0
        self.settled_total_mu = 0

    def account(self, replica: str) -> Account:
        """The account of a replica, opened when there is none; a retired one is in use again."""
        account = self._accounts.get(replica)
        if account is None:
            account = self._accounts[replica] = Account(replica)
        account.retired = False
        return account

    def retire(self, replica: str) -> None:
        """The replica is gone: forget its account as soon as nothing is in flight on it."""
        account = self._accounts.get(replica)
        if account is None:
            return
        account.retired = True
        if not account.in_flight:
            self.drop(account)

    def drop(self, account: Account) -> None:
        """For entries: the last one of a retired account was settled."""
        if self._accounts.get(account.replica) is account:
            del self._accounts[account.replica]

    def charge(self, account: Account, amount_mu: int) -> Entry:
        """Open an entry. Raises ValueError for a negative amount."""
        if amount_mu < 0:
            raise ValueError(f"A charge of {amount_mu} MU is negative.")
        account.in_flight += 1
        account.outstanding_mu += amount_mu
        self.charged_total_mu += amount_mu
        return Entry(self, account, amount_mu)

    @property
    def in_flight(self) -> int:
        """Attempts in flight on all replicas, those that left included."""
        return sum(account.in_flight for account in self._accounts.values())

    @property
    def outstanding_mu(self) -> int:
        """Work charged and not yet done, on all replicas."""
        return sum(account.outstanding_mu for account in self._accounts.values())

    def by_replica(self) -> dict[str, int]:
        """Attempts in flight per replica, those at zero included."""
        return {name: account.in_flight for name, account in self._accounts.items()}
