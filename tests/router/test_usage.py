"""What tenants used, as a router counts it and sends it on: each request once, whatever became of it."""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager

import msgspec
import pytest

from steelyard.contracts.usage_report import HOUR_MS, UsageReport
from steelyard.policy.units import GUESS, Features
from steelyard.router.usage_feed import Outbox
from support.raw_http import until
from support.router_process import fake_replicas, played_control, router_process, snapshot_of
from support.router_world import OTHER_TOKEN, world

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
USAGE = "prompt=100;cached=60;output=7"
OTHER = {"authorization": f"Bearer {OTHER_TOKEN}"}
PATIENCE_S = 20.0


def chat(**more) -> dict:
    return {"model": "m", "messages": [{"role": "user", "content": "hi " * 400}], "max_tokens": 10, **more}


def counted(w) -> dict[str, tuple[int, ...]]:
    """Of each principal: requests, rows, input, cached, output, image tokens, mmu."""
    outbox = Outbox("s")
    outbox.collect(w.router.table.tallies, 0)
    report = outbox.next()
    return {row.principal: msgspec.structs.astuple(row)[4:] for row in (report.rows if report else [])}


async def test_rows_and_tokens_are_counted_by_principal(tmp_path):
    async with world(tmp_path) as w:
        for _ in range(2):
            await w.ask({"usage": "rows=5"})
        await w.ask({"usage": "rows=1"}, **OTHER)
        rows_mmu, row_mmu = (GUESS.mmu(Features(rows=rows)) for rows in (5, 1))
        assert counted(w) == {"me": (2, 10, 0, 0, 0, 0, 2 * rows_mmu), "other": (1, 1, 0, 0, 0, 0, row_mmu)}
        assert counted(w) == {}
        w.apply(*w.replicas, task="llm/v1/chat")
        assert (await w.ask(chat(do="stream", usage="prompt=100;cached=60", last_usage=USAGE), CHAT)).complete
        await w.settled()
        mmu = GUESS.mmu(Features(input_tokens=40, cached_tokens=60, output_tokens=7))
        assert counted(w) == {"me": (1, 0, 100, 60, 7, 0, mmu)}


async def test_a_refused_request_counts_as_one_and_what_fails_on_our_side_as_none(tmp_path):
    async with world(tmp_path, replicas=2) as w:
        assert (await w.ask({"do": "status", "status": 400})).status == 400
        assert (await w.ask({"do": "garbage"})).status == 502
        assert not (await w.ask({"do": "stream", "cut_after": 2})).complete
        w.replicas[0].always = "drain"
        assert (await w.ask({"usage": "rows=1"})).status == 200  # perhaps at the second attempt
        w.apply()
        assert (await w.ask({})).status == 503
        await w.settled()
        assert counted(w) == {"me": (2, 1, 0, 0, 0, 0, GUESS.mmu(Features(rows=1)))}


async def test_what_ends_after_its_endpoint_was_deleted_is_counted_too(tmp_path):
    async with world(tmp_path) as w:
        client = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        w.apply_endpoints()
        w.replicas[0].release()
        assert (await client.reply()).status == 200
        await w.settled()
        assert counted(w)["me"][0] == 1


class Filled:
    """Something to collect, as a tally is."""

    def __init__(self, principal: str, requests: int) -> None:
        from steelyard.router.tally import Tally

        self.filled: list[Tally] = []
        tally = Tally("m", "m-1", self.filled)
        for _ in range(requests):
            tally.add(principal, 200, None, 0)


def requests_in(reports) -> list[tuple[str, int, list[tuple[int, str, int]]]]:
    return [(r.source, r.number, [(row.hour_ms, row.principal, row.requests) for row in r.rows]) for r in reports]


def test_a_report_stays_as_it_is_until_it_is_acknowledged_and_the_rest_waits_behind_it():
    outbox = Outbox("s")
    assert outbox.next() is None
    outbox.collect(Filled("a", 2).filled, 0)
    first = outbox.next()
    outbox.collect(Filled("a", 3).filled, 0)
    outbox.collect(Filled("b", 1).filled, HOUR_MS)
    assert outbox.next() is first
    waiting = [("s", 1, [(0, "a", 2)]), ("s", 2, [(0, "a", 3), (HOUR_MS, "b", 1)])]
    assert requests_in(outbox.left()) == waiting
    later = Outbox("t")  # of the next life, which found this on disk
    later.resume(outbox.left())
    later.collect(Filled("a", 1).filled, 0)
    sent = []
    while (report := later.next()) is not None:
        sent.append(report)
        later.acknowledge()
    assert requests_in(sent) == [*waiting, ("t", 1, [(0, "a", 1)])]


class Control:
    """Takes usage as control does, or fails in one of three ways: `away`, `deaf` (counts and does not answer)."""

    def __init__(self) -> None:
        self.how = "fine"
        self.counted: dict[tuple[str, int], UsageReport] = {}

    def handle(self, request, reply) -> None:
        if request.path != "/internal/usage":
            return  # a poll waits
        if self.how == "away":
            reply.send(503, [], b"")
            return
        report = msgspec.json.decode(request.body, type=UsageReport)
        known = self.counted.setdefault((report.source, report.number), report)
        assert known == report  # sent again, it is the same
        if self.how == "deaf":
            reply.abort()
        else:
            reply.send(200, [], b"{}")

    @property
    def requests(self) -> int:
        return sum(row.requests for report in self.counted.values() for row in report.rows)


@asynccontextmanager
async def control_at(home):
    control = Control()
    async with played_control(home, control.handle):
        yield control


async def test_nothing_is_lost_or_counted_twice_over_failures_restarts_and_a_clean_stop(tmp_path):
    home = tmp_path / "h"
    kept = home / "router-usage-0.json"
    home.mkdir()
    async with fake_replicas(tmp_path) as (replica,), control_at(home) as control:
        async with router_process(home, snapshot_of(replica)) as router:
            control.how = "deaf"
            for _ in range(3):
                assert (await router.ask({"usage": "rows=2"})).status == 200
            await until(lambda: control.requests == 3 and kept.exists(), PATIENCE_S)
            control.how = "away"
            assert (await router.ask({})).status == 200
            router.stop()
            assert await router.exit_status() == 0
        assert control.requests == 3
        assert kept.stat().st_mode & 0o777 == 0o600
        control.how = "fine"
        async with router_process(home, snapshot_of(replica)) as router:
            assert (await router.ask({}, path="/serving-endpoints/m/invocations")).status == 200
            router.stop(signal.SIGTERM)
            assert await router.exit_status() == 0
        assert control.requests == 5
        assert not kept.exists()
    (first, *_) = control.counted.values()
    assert [(row.endpoint, row.served_entity, row.principal, row.rows) for row in first.rows] == [("m", "m-1", "me", 6)]
