"""Replicas that share their time between their requests, on a virtual clock: a small world for routing tests.

A replica works at its speed on all that it runs at once, but on no request faster than `alone` of it; its prefix cache
is an exact LRU of blocks. It costs what the cost model says, with what was really cached.
"""

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count

from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Candidate
from steelyard.policy.units import CAPACITY_MMU_PER_S


class SharedReplica:
    def __init__(self, name, speed=1.0, cache_blocks=10_000, alone=0.25):
        self.name = name
        self.speed = speed
        self.alone = alone
        self.running = {}  # ticket → remaining mmu
        self.since_s = 0.0
        self.served_mmu = 0
        self.blocks = OrderedDict()
        self.cache_blocks = cache_blocks

    def _rate(self):
        return self.speed * CAPACITY_MMU_PER_S * min(self.alone, 1 / len(self.running))

    def advance(self, now_s):
        if self.running:
            done = self._rate() * (now_s - self.since_s)
            for ticket in self.running:
                self.running[ticket] -= done
        self.since_s = now_s

    def next_end(self):
        """(when, ticket) of the one that is done first."""
        if not self.running:
            return None
        ticket = min(self.running, key=lambda each: (self.running[each], each))
        return self.since_s + max(0.0, self.running[ticket]) / self._rate(), ticket

    def take(self, ticket, ask, now_s):
        """Begin a request. Returns what it really costs and how many of its tokens were cached."""
        self.advance(now_s)
        held = 0
        while held < len(ask.blocks) and ask.blocks[held] in self.blocks:
            held += 1
        cached_tokens = held * ask.block_tokens
        for block in reversed(ask.blocks):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.cache_blocks:
            self.blocks.popitem(last=False)
        mmu = ask.mmu_after(cached_tokens)
        self.running[ticket] = float(mmu)
        self.served_mmu += mmu
        return mmu, cached_tokens


@dataclass
class Served:
    at_s: float
    ask: object
    replica: str
    latency_s: float
    cached_tokens: float
    label: object = None


@dataclass
class World:
    """`make_chooser(ledger)` routes `arrivals`: (seconds, ask, label), in order."""

    replicas: list
    make_chooser: object
    limit: int = 10_000
    served: list = field(default_factory=list)

    def run(self, arrivals, events=()):
        """`events`: (seconds, function of this world), in order."""
        self.ledger = Ledger()
        self.candidates = [Candidate(self.ledger.account(each.name), self.limit) for each in self.replicas]
        self.chooser = self.make_chooser(self.ledger)
        self.by_name = {each.name: each for each in self.replicas}
        self.open = {}
        tickets = count()
        due = [(at_s, 0, index, event) for index, (at_s, event) in enumerate(events)]
        due += [(at_s, 1, index, (ask, label)) for index, (at_s, ask, label) in enumerate(arrivals)]
        heapq.heapify(due)
        while due:
            at_s, kind, _, what = heapq.heappop(due)
            self._finish_until(at_s)
            if kind == 0:
                what(self)
                continue
            ask, label = what
            decision = self.chooser.choose(self.candidates, at_s, ask)
            ticket = next(tickets)
            mmu, cached_tokens = self.by_name[decision.replica.account.replica].take(ticket, ask, at_s)
            self.open[ticket] = (decision, ask, label, mmu, cached_tokens)
        self._finish_until(float("inf"))
        assert self.ledger.in_flight == self.ledger.outstanding_mmu == 0
        return self

    def _finish_until(self, until_s):
        while True:
            ends = [(*end, each) for each in self.replicas if (end := each.next_end()) is not None]
            if not ends:
                return
            at_s, ticket, replica = min(ends, key=lambda end: end[:2])
            if at_s > until_s:
                return
            replica.advance(at_s)
            del replica.running[ticket]
            decision, ask, label, mmu, cached_tokens = self.open.pop(ticket)
            decision.entry.settle(mmu)
            self.chooser.settled(decision, ask, at_s, cached_tokens)
            self.served.append(Served(decision.at_s, ask, replica.name, at_s - decision.at_s, cached_tokens, label))

    def max_over_mean_mmu(self):
        loads = [each.served_mmu for each in self.replicas]
        return max(loads) / (sum(loads) / len(loads))

    def quantile_s(self, share, since_s=0.0):
        latencies = sorted(each.latency_s for each in self.served if each.at_s >= since_s)
        return latencies[int(share * (len(latencies) - 1))]
