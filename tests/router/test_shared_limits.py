"""Two router processes under one limit: together they keep it, and a client that sticks to one has nearly all of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from steelyard.contracts.leases import LeaseReport
from steelyard.contracts.snapshot import RateLimitView, TokenView
from steelyard.policy.lease_book import LeaseBook
from support.raw_http import RawClient
from support.router_process import INVOCATIONS, fake_replicas, played_control, router_process, snapshot_of

pytestmark = pytest.mark.anyio

LIMIT = 300
WINDOW_S = 55.0  # what is admitted in it is within one minute
PATIENCE_S = 30.0


class Control:
    """Serves the snapshot once, and grants as control does."""

    def __init__(self, snapshot) -> None:
        self.book = LeaseBook(2)
        self.snapshot = msgspec.json.encode(snapshot)
        self.polls = []

    def handle(self, request, reply) -> None:
        if request.path == "/internal/leases":
            report = msgspec.json.decode(request.body, type=LeaseReport)
            reply.send(200, [], msgspec.json.encode(self.book.report(report, time.monotonic())))
        elif "after=1&" in request.query:
            self.polls.append(reply)
        else:
            reply.send(200, [], self.snapshot)


@asynccontextmanager
async def control_at(home, snapshot):
    control = Control(snapshot)
    async with played_control(home, control.handle):
        yield control


def limited(replica):
    """Endpoint `m`, on which each user may have `LIMIT` calls a minute."""
    snapshot = snapshot_of(replica, max_concurrency=64)
    endpoint = msgspec.structs.replace(snapshot.endpoints[0], rate_limits=[RateLimitView(key="user", calls=LIMIT)])
    tokens = [TokenView(sha256=hashlib.sha256(user.encode()).hexdigest(), principal=user) for user in "abc"]
    return msgspec.structs.replace(snapshot, endpoints=[endpoint], tokens=tokens)


async def flood(router, user, tally, *, until) -> None:
    """Ask on one connection, again and again, until `until()`; `tally` holds when a request was let through."""
    client = await RawClient.open(router.address)
    try:
        while not until():
            client.request("POST", INVOCATIONS, b"{}", authorization=f"Bearer {user}")
            reply = await client.reply()
            if reply.status == 200:
                tally.append(time.monotonic())
            else:
                assert json.loads(reply.body)["error_code"] == "REQUEST_LIMIT_EXCEEDED"
                await asyncio.sleep(0.005)
    finally:
        client.close()


async def flood_all(routers, user, tally, *, enough=10**6, for_s=PATIENCE_S) -> None:
    end_s = time.monotonic() + for_s
    async with asyncio.TaskGroup() as tasks:
        for router in routers:
            tasks.create_task(
                flood(router, user, tally, until=lambda: len(tally) >= enough or time.monotonic() >= end_s)
            )


def in_one_minute(tally) -> int:
    return sum(at_s <= tally[0] + WINDOW_S for at_s in tally)


async def test_routers_together_keep_a_limit_and_each_alone_can_use_it(tmp_path):
    home = tmp_path / "h"
    home.mkdir()
    async with AsyncExitStack() as stack:
        (replica,) = await stack.enter_async_context(fake_replicas(tmp_path))
        snapshot = limited(replica)
        lost = AsyncExitStack()
        async with control_at(home, snapshot) as control:
            routers = [
                await stack.enter_async_context(router_process(home, snapshot, routers=2)),
                await lost.enter_async_context(router_process(home, snapshot, routers=2, index=1)),
            ]

            alone: list[float] = []
            await flood_all(routers[:1], "a", alone, enough=0.95 * LIMIT)
            assert in_one_minute(alone) >= 0.9 * LIMIT
            await flood_all(routers, "a", alone, for_s=0.5)
            assert in_one_minute(alone) <= LIMIT

            both: list[float] = []
            await flood_all(routers, "b", both, enough=0.95 * LIMIT)
            assert 0.95 * LIMIT <= in_one_minute(both) <= LIMIT
            await lost.aclose()  # killed: what it had is not had twice
            routers[1] = await stack.enter_async_context(router_process(home, snapshot, routers=2, index=1))
            await flood_all(routers, "b", both, for_s=1.0)
            assert in_one_minute(both) <= LIMIT
            assert len(control.book) == 2

            both = []
            await flood_all(routers[:1], "c", both, enough=0.7 * LIMIT)
        await flood_all(routers, "c", both, for_s=0.5)  # without control
        assert 0.7 * LIMIT <= in_one_minute(both) <= LIMIT


async def test_with_one_router_control_hears_nothing_of_limits(tmp_path):
    home = tmp_path / "h"
    home.mkdir()
    async with fake_replicas(tmp_path) as (replica,):
        snapshot = limited(replica)
        async with control_at(home, snapshot) as control, router_process(home, snapshot) as router:
            tally: list[float] = []
            await flood_all([router], "a", tally, enough=LIMIT)
            assert len(tally) == LIMIT
            assert control.polls
            assert control.book._asked_s is None
