"""What every routing policy has in common, and the policies that only count requests.

**Inputs** The candidates (account in the ledger, limit, mark), `now_s`, and an `Ask`: what is known of the request.
**Parameters** `limit`: requests that a replica may hold at once. `LOOK_AT_ALL` = 8: up to so many candidates
`PowerOfTwoChoices` compares all; above, two drawn at random, then all that are free if both are not; `LeastInTurn`
compares the next so many. `ANSWERS` = 4 requests that answer delay the next one as much as one that does not yet: an
engine goes on with its answers while it reads a prompt, but reads prompts one after the other.
**Trade-offs** Comparing all is exact when the ledger sees all load, and costs time in proportion to the candidates;
two choices stay cheap, and with several routers keep them from running to the same replica at once.
**Failure modes** Load that other routers put on a replica is not seen. When every candidate is full or marked there is
no decision (None): the request waits. The charge is part of the decision, so that a burst of decisions in one instant
cannot all see the same idle replica; ties are broken by the given random numbers, never by position.

`expected_wait.py` weighs instead of counting. The router's dispatcher and the simulator are who chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from steelyard.policy.ledger import Account, Entry, Ledger
from steelyard.policy.marks import Mark
from steelyard.policy.units import CostModel, Features

LOOK_AT_ALL: Final = 8
ANSWERS: Final = 4


class Ask:
    """What routing knows of one request. Made once, used again for every attempt."""

    __slots__ = ("answer_mmu", "block_tokens", "blocks", "cost", "features", "key", "least_mmu", "mmu")

    def __init__(
        self,
        features: Features,
        cost: CostModel,
        blocks: tuple[int, ...] = (),
        block_tokens: float = 0.0,
        key: int | None = None,
    ) -> None:
        self.features = features  # as if nothing were cached
        self.cost = cost
        self.blocks = blocks  # chained hashes of the prompt's whole blocks, the head first; () where none is known
        self.block_tokens = block_tokens  # tokens that a block stands for
        self.key = key  # sticky key, the same in every router; None: none
        self.mmu = cost.mmu(features)  # where nothing is cached
        self.answer_mmu = 0  # of it, for the answer: the same wherever it goes
        if features.output_tokens:
            self.answer_mmu = max(0, self.mmu - cost.mmu(_without_answer(features)))
        self.least_mmu = self.mmu  # where all of its prompt is that may be
        if key is not None or blocks:
            self.least_mmu = self.mmu_after(features.input_tokens + features.image_tokens)

    def mmu_after(self, cached_tokens: float) -> int:
        """What it costs a replica that has so many tokens of the prompt cached."""
        if cached_tokens <= 0:
            return self.mmu
        whole = self.features
        text = min(cached_tokens, whole.input_tokens)
        image = min(cached_tokens - text, whole.image_tokens)
        features = Features(
            input_tokens=whole.input_tokens - text,
            cached_tokens=whole.cached_tokens + text + image,
            output_tokens=whole.output_tokens,
            image_tokens=whole.image_tokens - image,
            rows=whole.rows,
        )
        return self.cost.mmu(features)


def _without_answer(whole: Features) -> Features:
    return Features(
        input_tokens=whole.input_tokens,
        cached_tokens=whole.cached_tokens,
        image_tokens=whole.image_tokens,
        rows=whole.rows,
    )


class Candidate:
    """What routing knows of a replica. The router's replicas derive from it."""

    __slots__ = ("account", "limit", "mark", "speed")

    def __init__(self, account: Account, limit: int) -> None:
        self.account = account
        self.limit = limit
        self.mark = Mark()
        self.speed = 1.0  # 0.5: takes twice as long for the same work; learnt, see `speed.py`

    def is_free(self, now_s: float) -> bool:
        return self.account.in_flight < self.limit and self.mark.until_s <= now_s


C = TypeVar("C", bound=Candidate)


class Reason(StrEnum):
    """Strings, since those are hashed in C: every decision is counted by its reason."""

    ONLY_FREE = "the only free replica"
    LEAST_BUSY = "the least busy of all"
    LESS_BUSY = "the less busy of two"
    IN_TURN = "next in turn"
    LEAST_IN_TURN = "the least busy of the next in turn"
    SOONEST = "the least expected wait"
    AT_HOME = "the least expected wait among the replicas of its key"
    SPILLED = "another than those of its key, since that saves more than it costs"


class Decision(Generic[C]):
    """A replica, why, and the ledger entry that is already charged to it."""

    __slots__ = ("at_s", "cached_tokens", "depth", "entry", "generation", "in_flight", "reason", "replica")

    def __init__(self, replica: C, reason: Reason, entry: Entry, at_s: float, cached_tokens: float = 0.0) -> None:
        self.replica = replica
        self.reason = reason
        self.entry = entry
        self.at_s = at_s
        self.in_flight = replica.account.in_flight  # this one included
        self.cached_tokens = cached_tokens  # of the prompt, as is believed
        self.depth = 0  # blocks of the prompt that it was thought to hold,
        self.generation = 0  # and when it last used them; see `prefix_index.py`


class Chooser(Protocol):
    """The seam of routing policies."""

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        """Charges the ledger within. Candidates that differ from the last ones come in another sequence object."""
        ...

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """After `decision.entry` was settled: correct what is believed. `cached_tokens` None: the replica did not say.

        An entry that was settled without its actual cost counts as an attempt that failed.
        """
        ...


class PowerOfTwoChoices:
    """Fewest requests in flight, over all candidates when they are few, else over two drawn at random."""

    __slots__ = ("_ledger", "_random")

    def __init__(self, ledger: Ledger, rng: Random) -> None:
        self._ledger = ledger
        self._random: Callable[[], float] = rng.random

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        count = len(candidates)
        if count == 1:
            only = candidates[0]
            if only.account.in_flight >= only.limit or only.mark.until_s > now_s:  # is_free, without the call
                return None
            return Decision(only, Reason.ONLY_FREE, self._ledger.charge(only.account, ask.mmu, ask.answer_mmu), now_s)
        reason = Reason.LEAST_BUSY
        best: C | None = None
        if count > LOOK_AT_ALL:
            reason = Reason.LESS_BUSY
            first = int(self._random() * count)
            second = (first + 1 + int(self._random() * (count - 1))) % count
            best = least_busy((candidates[first], candidates[second]), now_s, self._random)
        if best is None:
            best = least_busy(candidates, now_s, self._random)
        if best is None:
            return None
        return Decision(best, reason, self._ledger.charge(best.account, ask.mmu, ask.answer_mmu), now_s)

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """Counting requests needs no learning."""


class LeastRequests:
    """The baseline that compares all candidates: fewest requests in flight."""

    __slots__ = ("_ledger", "_random")

    def __init__(self, ledger: Ledger, rng: Random) -> None:
        self._ledger = ledger
        self._random: Callable[[], float] = rng.random

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        best = least_busy(candidates, now_s, self._random)
        if best is None:
            return None
        return Decision(best, Reason.LEAST_BUSY, self._ledger.charge(best.account, ask.mmu, ask.answer_mmu), now_s)

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """Counting requests needs no learning."""


class LeastInTurn:
    """For requests that are alike: of the next in turn, the one with the fewest requests ahead of this one.

    Turns space the requests of each replica evenly, which chance does not; whoever was passed over stays next.
    """

    __slots__ = ("_ledger", "_order", "_random")

    def __init__(self, ledger: Ledger, rng: Random) -> None:
        self._ledger = ledger
        self._random: Callable[[], float] = rng.random
        self._order: list[int] = []  # positions, the one chosen least recently first

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        count = len(candidates)
        order = self._order
        if len(order) != count:
            start = int(self._random() * count)  # several routers do not begin with the same one
            order = self._order = [*range(start, count), *range(start)]
        best: C | None = None
        turn = fewest = 0
        for step in range(count):
            if step >= LOOK_AT_ALL and best is not None:
                break
            candidate = candidates[order[step]]
            account = candidate.account
            if account.in_flight >= candidate.limit or candidate.mark.until_s > now_s:  # is_free, without the call
                continue
            ahead = account.in_flight - account.answering + account.answering // ANSWERS
            if best is None or ahead < fewest:
                best, fewest, turn = candidate, ahead, step
        if best is None:
            return None
        order.append(order.pop(turn))
        reason = Reason.LEAST_BUSY if count <= LOOK_AT_ALL else Reason.LEAST_IN_TURN
        return Decision(best, reason, self._ledger.charge(best.account, ask.mmu, ask.answer_mmu), now_s)

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """Counting requests needs no learning."""


class RoundRobin:
    """The baseline to compare with: free replicas in turn, whatever their load."""

    __slots__ = ("_ledger", "_turn")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turn = 0

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        for _ in range(len(candidates)):
            candidate = candidates[self._turn % len(candidates)]
            self._turn += 1
            if candidate.is_free(now_s):
                entry = self._ledger.charge(candidate.account, ask.mmu, ask.answer_mmu)
                return Decision(candidate, Reason.IN_TURN, entry, now_s)
        return None

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """Taking turns needs no learning."""


def least_busy(candidates: Sequence[C], now_s: float, draw: Callable[[], float]) -> C | None:
    """The free candidate with the fewest requests in flight, any of those that tie; None when none is free."""
    best: C | None = None
    fewest = ties = 0
    for candidate in candidates:
        if not candidate.is_free(now_s):
            continue
        load = candidate.account.in_flight
        if best is None or load < fewest:
            best, fewest, ties = candidate, load, 1
        elif load == fewest:  # keep each of k tied ones with probability 1/k
            ties += 1
            if draw() * ties < 1.0:
                best = candidate
    return best
