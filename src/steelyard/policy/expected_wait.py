"""Sends a request where all together wait least: it itself, and those whom it delays; by one formula in seconds.

    delay = (ahead + cost × (1 + others) + displaced) ÷ (1,000,000 mmu/s × speed)

`cost`: of this request after the prefix that the replica holds. `ahead`: the replica's backlog, in which answers count
¼. `others`: its requests in flight, of which those that answer count ¼. `displaced`: see below.

**Inputs** The candidates with their backlog in the ledger, the request's cost model, blocks and key, `now_s`; after the
attempt, what it cost, how long it took and how many tokens had been cached.
**Parameters** Up to `LOOK_AT_ALL` = 16 candidates all are compared; above, a shortlist: of the key's replicas
`HOME` = 4, `HOLDERS` = 4 of the longest prefix, `STRANGERS` = 8 drawn at random.
`ANSWERS` = 4 (`routing.py`) is the inverse of that ¼: decoding goes on beside prompts, which hardly wait for it;
calibration may measure it one day.
**Why others count** Whoever minimises only its own wait spills as soon as recomputing a prefix takes less time than
waiting for it; all behind it pay for that, and overload feeds itself. For a queue served in order, what a job of x
seconds adds to the waits of all is u + x + λ x (2u + x) ÷ 2 (1 − ρ), u being the backlog (Hyytiä, Penttinen and Aalto,
Size- and state-aware dispatching problem with queue-specific job sizes, EJOR 217, 2012). λu, those that come while it
waits, is by Little's law about the number that is there. We count those, each of which `cost` delays once: no rate need
be estimated, it holds in overload, where 1 − ρ does not, and affinity grows with load by itself. In simulations half of
it lost a crowded fleet of agents; twice as much gained goodput there and lost p99. Neither was better throughout.
**Trade-offs** No gate turns affinity off and no threshold turns it on: a prefix is worth the seconds that it saves, a
queue costs the seconds that it takes. On a replica that is not one of the key's, what the request computes anew counts
once more, since it displaces as much of what others have cached: this is the hysteresis that keeps keys where they are.
A key that did move is as much at home where its prefix now is.
**Failure modes** Beliefs about caches and speeds can be wrong for a while; reports correct them, and load bounds the
harm. When nobody of the shortlist is free the least backlog of all free ones decides; when nobody is, None.

One per served entity: it owns what is believed of that entity's replicas. Ties go to who was chosen least recently,
from a random start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from steelyard.policy.affinity import Slice, SliceMap
from steelyard.policy.ledger import Account, Ledger
from steelyard.policy.prefix_index import MOST_ENTRIES, Cache, PrefixIndex, Summary
from steelyard.policy.routing import ANSWERS, Ask, C, Candidate, Decision, Reason
from steelyard.policy.speed import Speeds

LOOK_AT_ALL: Final = 16
HOME: Final = 4
HOLDERS: Final = 4
STRANGERS: Final = 8


class ExpectedWait:
    __slots__ = (
        "_caches",
        "_candidates",
        "_chosen",
        "_decisions",
        "_ledger",
        "_positions",
        "_random",
        "prefixes",
        "slices",
        "speeds",
    )

    def __init__(self, ledger: Ledger, rng: Random, *, routers: int = 1, most_entries: int = MOST_ENTRIES) -> None:
        self._ledger = ledger
        self._random: Callable[[], float] = rng.random
        self.prefixes = PrefixIndex(most_entries)
        self.slices = SliceMap(routers)
        self.speeds = Speeds()
        self._candidates: Sequence[Candidate] = ()
        self._caches: list[Cache] = []  # by position
        self._positions: dict[str, int] = {}
        self._chosen: list[float] = []  # by position: the number of the last decision for it
        self._decisions = 0.0

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        """Expects another sequence object when the candidates are others."""
        if candidates is not self._candidates or len(candidates) != len(self._caches):
            self._meet(candidates)
        part: Slice | None = None
        home: list[int] = []
        if ask.key is not None:
            part = self.slices.find(ask.key)
            home = self._home(candidates, part, now_s)
        count = len(candidates)
        levels = self.prefixes.levels(ask.blocks) if ask.blocks else []
        among: Sequence[int] = range(count) if count <= LOOK_AT_ALL else self._shortlist(count, levels, home)
        best = self._soonest(candidates, among, now_s, ask, levels=levels, home=home)
        if best < 0 and count > LOOK_AT_ALL:
            best = self._least_backlog(candidates, now_s)
        if best < 0:
            return None
        replica, cache = candidates[best], self._caches[best]
        if replica.account.replica != cache.replica:  # the same sequence, but with others in it
            self._meet(candidates)
            return self.choose(candidates, now_s, ask)
        depth = 0
        if levels:
            self.prefixes.expire(cache, now_s)
            depth = self.prefixes.depth(cache, ask.blocks)
        cached_tokens = depth * ask.block_tokens * cache.trust
        amount_mmu = ask.mmu_after(cached_tokens) if depth else ask.mmu
        reason = Reason.SOONEST if part is None else Reason.AT_HOME if best in home else Reason.SPILLED
        entry = self._ledger.charge(replica.account, amount_mmu, ask.answer_mmu)
        self._decisions += 1.0
        self._chosen[best] = self._decisions
        decision = Decision(replica, reason, entry, now_s, cached_tokens)
        if ask.blocks:
            decision.depth = depth
            if depth:
                decision.generation = cache.generation(ask.blocks[depth - 1])
            self.prefixes.promise(cache, ask.blocks, now_s)
        if part is not None:
            self.slices.charge(part, amount_mmu, now_s)
        return decision

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """Learn from an attempt whose entry is settled: with its actual cost if it succeeded, with None if not."""
        account = decision.replica.account
        actual_mmu = decision.entry.actual_mmu
        position = self._positions.get(account.replica)
        if position is None:  # it left meanwhile
            return
        cache = self._caches[position]
        if actual_mmu is None:
            self.prefixes.withdraw(cache, ask.blocks)
            return
        if ask.blocks:
            if cached_tokens is not None and decision.depth:
                believed = decision.depth * ask.block_tokens
                self.prefixes.correct(cache, believed, ask.block_tokens, decision.generation, cached_tokens)
            self.prefixes.confirm(cache, ask.blocks, now_s)
        in_flight = (decision.in_flight + account.in_flight + 1) / 2
        self.speeds.observe(account.replica, actual_mmu, now_s - decision.at_s, in_flight, now_s)

    def flush(self, replica: str) -> None:
        """The replica started anew, or emptied its cache."""
        self.prefixes.flush(replica)

    def summary(self, now_s: float, most_entries: int) -> Summary:
        """What a new router should know of the replicas' caches."""
        return self.prefixes.summary(now_s, most_entries)

    def learn(self, candidates: Sequence[Candidate], summary: Summary, now_s: float) -> None:
        """Begin with what another router knew."""
        self._meet(candidates)
        self.prefixes.learn(summary, now_s)

    # --- parts of a decision

    def _soonest(
        self,
        candidates: Sequence[Candidate],
        among: Sequence[int],
        now_s: float,
        ask: Ask,
        *,
        levels: list[tuple[int, int]],
        home: list[int],
    ) -> int:
        """Position with the least delay of those free; -1: none is."""
        best = -1
        least = last_tokens = 0.0
        last_mmu = ask.mmu  # replicas with as much cached cost the same
        chosen = self._chosen
        for position in among:
            candidate = candidates[position]
            account = candidate.account
            if account.in_flight >= candidate.limit or candidate.mark.until_s > now_s:  # is_free, without the call
                continue
            tokens = 0.0
            if levels:
                cache = self._caches[position]
                for depth, holders in levels:
                    if holders & cache.mask:
                        tokens = depth * ask.block_tokens * cache.trust
                        break
            if tokens != last_tokens:
                last_tokens, last_mmu = tokens, ask.mmu_after(tokens)
            answering = account.answering
            others = account.in_flight - answering + answering / ANSWERS
            work_mmu = _ahead_mmu(account) + last_mmu * (1.0 + others)
            if home and position not in home:
                work_mmu += last_mmu - ask.least_mmu  # what it displaces
            delay = work_mmu / candidate.speed  # ÷ the capacity, which is the same for all
            if best < 0 or delay < least or (delay == least and chosen[position] < chosen[best]):
                best, least = position, delay
        return best

    def _home(self, candidates: Sequence[Candidate], part: Slice, now_s: float) -> list[int]:
        """The key's replicas; the next ones in its ranking stand in for those that cannot take it."""
        home: list[int] = []
        for position in self.slices.ranking(part):
            if candidates[position].is_free(now_s):
                home.append(position)
                if len(home) >= part.size:
                    break
        return home

    def _shortlist(self, count: int, levels: list[tuple[int, int]], home: list[int]) -> list[int]:
        draw = self._random
        listed = set(home)
        if len(home) > HOME:
            start = int(draw() * len(home))
            listed = {home[(start + step) % len(home)] for step in range(HOME)}
        left = HOLDERS
        for _, holders in levels:
            some = self.prefixes.some_of(holders, left, draw)
            for cache in some:
                listed.add(self._positions[cache.replica])
            left -= len(some)
            if not left:
                break
        for _ in range(STRANGERS):
            listed.add(int(draw() * count))
        return sorted(listed)  # the same order for the same seed

    def _least_backlog(self, candidates: Sequence[Candidate], now_s: float) -> int:
        best = -1
        least = 0.0
        chosen = self._chosen
        for position, candidate in enumerate(candidates):
            account = candidate.account
            if account.in_flight >= candidate.limit or candidate.mark.until_s > now_s:
                continue
            backlog = _ahead_mmu(account) / candidate.speed
            if best < 0 or backlog < least or (backlog == least and chosen[position] < chosen[best]):
                best, least = position, backlog
        return best

    def _meet(self, candidates: Sequence[Candidate]) -> None:
        """The candidates are others than before: forget who left, and what only they knew."""
        names = [candidate.account.replica for candidate in candidates]
        self._positions = {name: position for position, name in enumerate(names)}
        for name in self.prefixes.replicas():
            if name not in self._positions:
                self.prefixes.remove(name)
        self._caches = [self.prefixes.cache(name) for name in names]
        self.slices.assign(names)
        self.speeds.assign(candidates)
        self._chosen = [-self._random() for _ in names]
        self._candidates = candidates


def _ahead_mmu(account: Account) -> float:
    """Work that a prompt waits for."""
    return account.outstanding_mmu - account.answer_mmu * (1.0 - 1.0 / ANSWERS)
