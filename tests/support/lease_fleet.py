"""Routers that share rate limits and the control that grants, in virtual time and without a process.

`Node` is one life of a router: its buckets and its `LeaseHolder`. `Fleet` lets them exchange messages with delays and
losses, and keeps what was taken, when and by whom.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from steelyard.contracts.leases import LimitKey
from steelyard.policy.lease_book import LeaseBook
from steelyard.policy.lease_holder import LeaseHolder
from steelyard.policy.rate_leases import even_share
from steelyard.policy.token_bucket import WINDOW_S, Bucket

TICK_S = 0.25
TIMEOUT_S = 3.0


def limit_key(limit, principal="", endpoint="m"):
    return LimitKey(endpoint, 0, "user" if principal else "endpoint", principal, limit)


class Node:
    def __init__(self, router, routers):
        self.router, self.routers = router, routers
        self.buckets = {}
        self.opened = 0
        self.holder = LeaseHolder(
            router, routers, find=self.buckets.get, every=self.buckets.values, on_open=self._note_open
        )
        self.reported_s = None
        self.life = None  # as it last said
        self.asked_with = None  # number of the report that waits for an answer

    def _note_open(self):
        self.opened += 1

    def bucket(self, key) -> Bucket:
        if key not in self.buckets:
            self.buckets[key] = self.holder.bucket(key, None)
        return self.buckets[key]

    def ask(self, key, amount, now_s):
        """Take it if there is room."""
        bucket = self.bucket(key)
        if not bucket.ask(amount, now_s):
            return False
        bucket.take(amount, now_s)
        return True

    def may_take(self, key, now_s):
        """As much, if everything was asked for now."""
        bucket = self.bucket(key)
        room = bucket.room(now_s)
        if bucket.opener is not None and self.holder.joined:
            room = even_share(key.per_minute, self.router, self.routers) - bucket.taken
        return max(0, room)

    def report(self, now_s):
        report = self.holder.report(now_s)
        self.reported_s, self.life, self.asked_with = now_s, report.began, (report.began, report.number)
        return report

    def follow(self, asked_with, answer):
        """Take an answer, unless the report was given up."""
        if asked_with != self.asked_with:
            return False
        self.asked_with = None
        return self.holder.follow(answer)


class Fleet:
    def __init__(self, routers, rng, *, lost=0.0, delay_s=(0.001, 0.05)):
        self.routers, self.rng, self.lost, self.delay_s = routers, rng, lost, delay_s
        self.book = LeaseBook(routers)
        self.is_away = False  # control
        self.nodes = {router: Node(router, routers) for router in range(routers)}
        self.taken = []  # (time, amount)
        self.refused = 0
        self.clients_come_back = False  # when they are told to
        self._events, self._number = [], count()
        for router, node in self.nodes.items():
            self.at(0.01 * router, self._tick, node)

    def at(self, at_s, act, *arguments):
        heapq.heappush(self._events, (at_s, next(self._number), act, arguments))

    def run(self, until_s):
        while self._events and self._events[0][0] < until_s:
            now_s, _, act, arguments = heapq.heappop(self._events)
            act(now_s, *arguments)

    def ask(self, now_s, router, key, amount):
        node = self.nodes.get(router)
        if node is None:
            return
        opened = node.opened
        if node.ask(key, amount, now_s):
            self.taken.append((now_s, amount))
        else:
            self.refused += 1
            if self.clients_come_back:
                wait_s = node.bucket(key).room_in_s(amount, now_s)
                self.at(now_s + (wait_s or 1.0), self.ask, router, key, amount)
        if node.opened > opened:
            self.at(now_s + 0.01, self._tick, node)

    def kill(self, now_s, router, back_after_s):
        del self.nodes[router]
        self.at(now_s + back_after_s, self._start, router)

    def restart_control(self, now_s, away_s):
        self.is_away = True
        self.at(now_s + away_s, self._control_is_back)

    def _control_is_back(self, now_s):
        self.is_away = False
        self.book = LeaseBook(self.routers)

    def _start(self, now_s, router):
        self.nodes[router] = Node(router, self.routers)
        self._tick(now_s, self.nodes[router])

    def _tick(self, now_s, node):
        if self.nodes.get(node.router) is not node:
            return
        report = node.report(now_s)
        self._later(now_s, self._answer, node, report)
        if node.asked_with is not None:
            self.at(now_s + TIMEOUT_S, self._give_up, node, node.asked_with)

    def _give_up(self, now_s, node, asked_with):
        if node.asked_with == asked_with:
            self._tick(now_s, node)

    def _later(self, now_s, act, *arguments):
        if not self.is_away and self.rng.random() >= self.lost:
            self.at(now_s + self.rng.uniform(*self.delay_s), act, *arguments)

    def _answer(self, now_s, node, report):
        if not self.is_away:
            answer = self.book.report(report, now_s)
            self._later(now_s, self._follow, node, (report.began, report.number), answer)

    def _follow(self, now_s, node, asked_with, answer):
        if self.nodes.get(node.router) is node and node.asked_with == asked_with:
            again = node.follow(asked_with, answer)
            self.at(now_s + (0.02 if again else TICK_S), self._tick, node)

    def fullest_minute(self):
        window, total, most = deque(), 0, 0
        for at_s, amount in self.taken:
            window.append((at_s, amount))
            total += amount
            while window[0][0] <= at_s - WINDOW_S:
                total -= window.popleft()[1]
            most = max(most, total)
        return most

    def used(self, limit, begin_s, end_s):
        """How much of the limit was taken on average."""
        total = sum(amount for at_s, amount in self.taken if begin_s <= at_s < end_s)
        return total * WINDOW_S / (end_s - begin_s) / limit
