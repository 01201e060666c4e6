"""The ledger of load: who owes how much to which replica. The only place where a load figure changes.

**Inputs** A charge per attempt of a request: `amount_mmu` (milli model units, a whole number ≥ 0, so that sums are
exact), of which `answer_mmu` for an answer that is made token by token; then progress (`done_mmu`, how much of it is
worked off, the answer last), the answer's begin, raised when more comes than was charged, then one settle with what it
really cost (None: not known, which is not zero).
**Parameters** None.
**Guarantees** An entry settles exactly once, however often and from however many paths `settle` is called. No figure
is ever negative. When no entry is open every figure is exactly zero and charged total = settled total.
**Trade-offs** Figures are this process's own; several routers each hold their own ledger. What a request really cost
does not change what was charged for it: both totals are kept, and their quotient is what drift watches.
**Failure modes** An entry that nobody settles stays as load for ever: owners hold it in a `with` block or settle it in
the one function that ends a request. A replica that left keeps its account until its last entry is settled.

The router's exchange opens and settles entries; routing reads accounts. Neither health nor metrics code can write.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Account:
    """Load of one replica: `in_flight` attempts, `outstanding_mmu` of work that is charged and not yet done.

    Of these, `answering` attempts have begun to answer, and `answer_mmu` is work on answers, begun or not: who comes
    next hardly waits for it.
    """

    __slots__ = ("answer_mmu", "answering", "in_flight", "outstanding_mmu", "replica", "retired")

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.in_flight = 0
        self.answering = 0
        self.outstanding_mmu = 0
        self.answer_mmu = 0
        self.retired = False


class Entry:
    """One attempt's charge. Use as a context manager, or call `settle` from whatever ends the attempt."""

    __slots__ = (
        "_ledger",
        "account",
        "actual_mmu",
        "answer_mmu",
        "answering",
        "charged_mmu",
        "remaining_mmu",
        "settled",
    )

    def __init__(self, ledger: Ledger, account: Account, amount_mmu: int, answer_mmu: int) -> None:
        self._ledger = ledger
        self.account = account
        self.charged_mmu = amount_mmu
        self.remaining_mmu = amount_mmu
        self.answer_mmu = answer_mmu  # of what remains
        self.answering = False
        self.actual_mmu: int | None = None  # what it really cost; None before it is settled, and where nobody knows
        self.settled = False

    def progress(self, done_mmu: int) -> None:
        """Work off `done_mmu` more, of the answer last.

        More than was charged counts as all of it; after settling, nothing happens.
        """
        if self.settled or done_mmu <= 0:
            return
        step_mmu = min(done_mmu, self.remaining_mmu)
        self.remaining_mmu -= step_mmu
        self.account.outstanding_mmu -= step_mmu
        self._answer_is(min(self.answer_mmu, self.remaining_mmu))

    def begin_answer(self) -> None:
        """The first token came: what remains is the answer's. Later calls change nothing."""
        if self.settled or self.answering:
            return
        self.answering = True
        self.account.answering += 1
        self._answer_is(self.remaining_mmu)

    def raise_to(self, amount_mmu: int) -> None:
        """It turns out to cost at least `amount_mmu` in all. Never lowers a charge; after settling, nothing happens."""
        more_mmu = amount_mmu - self.charged_mmu
        if self.settled or more_mmu <= 0:
            return
        self.charged_mmu += more_mmu
        self.remaining_mmu += more_mmu
        self.account.outstanding_mmu += more_mmu
        self._ledger.charged_total_mmu += more_mmu
        if self.answering:
            self._answer_is(self.remaining_mmu)

    def settle(self, actual_mmu: int | None = None) -> bool:
        """Close the entry; `actual_mmu` is what it really cost. True the first time; later calls change nothing.

        A negative cost closes the entry all the same and counts as unknown, since load must not leak over a figure
        that is only kept for comparison.
        """
        if self.settled:
            return False
        self.settled = True
        account = self.account
        ledger = self._ledger
        account.in_flight -= 1
        account.outstanding_mmu -= self.remaining_mmu
        self.remaining_mmu = 0
        self._answer_is(0)
        if self.answering:
            account.answering -= 1
        ledger.settled_total_mmu += self.charged_mmu
        if actual_mmu is not None and actual_mmu >= 0:
            self.actual_mmu = actual_mmu
            ledger.known_total_mmu += self.charged_mmu
            ledger.actual_total_mmu += actual_mmu
        if account.retired and not account.in_flight:
            ledger.drop(account)
        return True

    def _answer_is(self, answer_mmu: int) -> None:
        self.account.answer_mmu += answer_mmu - self.answer_mmu
        self.answer_mmu = answer_mmu

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.settle()


class Ledger:
    """All accounts of one router, and totals that only grow.

    `actual_total_mmu` is what the settled entries really cost whose cost became known, `known_total_mmu` what had been
    charged for the same ones.
    """

    __slots__ = ("_accounts", "actual_total_mmu", "charged_total_mmu", "known_total_mmu", "settled_total_mmu")

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self.charged_total_mmu = 0
        self.settled_total_mmu = 0
        self.known_total_mmu = 0
        self.actual_total_mmu = 0

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

    def charge(self, account: Account, amount_mmu: int, answer_mmu: int = 0) -> Entry:
        """Open an entry; `answer_mmu` of the amount is for the answer. Raises ValueError for a negative one."""
        if amount_mmu < 0 or answer_mmu < 0:
            raise ValueError(f"A charge of {amount_mmu} milli-MU, {answer_mmu} for the answer: none may be negative.")
        answer_mmu = min(answer_mmu, amount_mmu)
        account.in_flight += 1
        account.outstanding_mmu += amount_mmu
        account.answer_mmu += answer_mmu
        self.charged_total_mmu += amount_mmu
        return Entry(self, account, amount_mmu, answer_mmu)

    @property
    def in_flight(self) -> int:
        """Attempts in flight on all replicas, those that left included."""
        return sum(account.in_flight for account in self._accounts.values())

    @property
    def outstanding_mmu(self) -> int:
        """Work charged and not yet done, on all replicas."""
        return sum(account.outstanding_mmu for account in self._accounts.values())

    def by_replica(self) -> dict[str, int]:
        """Attempts in flight per replica, those at zero included."""
        return {name: account.in_flight for name, account in self._accounts.items()}
