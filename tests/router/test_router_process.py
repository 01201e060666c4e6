"""The router as a process: snapshots from disk and from control, drain, lifeline, its own socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import msgspec
import pytest

from steelyard.contracts.snapshot import Snapshot
from steelyard.router.snapshot import SNAPSHOT_FILE
from support.fake_replica import FakeReplica
from support.raw_http import RawClient, ask, until
from support.router_process import BEARER, INVOCATIONS, fake_replicas, played_control, router_process, snapshot_of
from support.router_world import charge_of

pytestmark = pytest.mark.anyio


class FakeControl:
    """Serves the routing snapshot as control does: at once when it differs, else when it changes."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.waiting = []
        self.acknowledged: list[int] = []

    def handle(self, request, reply) -> None:
        if request.path == "/internal/usage":
            reply.send(200, [], b"{}")
            return
        query = dict(pair.split("=") for pair in request.query.split("&"))
        assert request.path == "/internal/snapshot"
        assert query["router"] == "0"
        self.acknowledged.append(int(query["after"]))
        if self.snapshot is not None and self.snapshot.version != int(query["after"]):
            reply.send(200, [], msgspec.json.encode(self.snapshot))
        else:
            self.waiting.append(reply)

    def push(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        for reply in self.waiting:
            reply.send(200, [], msgspec.json.encode(snapshot))
        self.waiting.clear()


@asynccontextmanager
async def fake_control(home):
    control = FakeControl()
    async with played_control(home, control.handle):
        yield control


async def test_it_serves_its_snapshot_from_disk_without_control(tmp_path):
    async with fake_replicas(tmp_path) as (replica,), router_process(tmp_path / "h", snapshot_of(replica)) as router:
        assert (await ask(router.address, "GET", "/readyz")).status == 200
        assert (await router.ask({})).status == 200
        assert (await ask(router.address, "GET", "/metrics", authorization=BEARER)).status == 503
        text = (await router.admin("/metrics")).body.decode()
        assert "steelyard_router_control_up 0.0" in text
        assert "steelyard_router_snapshot_version 1.0" in text
        ledger = await router.at_rest()
        assert (ledger["snapshot_version"], ledger["charged_total_mmu"]) == (1, charge_of({}))
        assert (await router.admin("/livez")).status == 200
        assert (await router.admin("/nothing")).status == 404


async def test_without_any_snapshot_it_is_alive_but_not_ready(tmp_path):
    async with router_process(tmp_path / "h") as router:
        assert (await ask(router.address, "GET", "/livez")).status == 200
        assert (await ask(router.address, "GET", "/readyz")).status == 503
        assert (await router.ask({})).status == 503


async def test_a_broken_snapshot_on_disk_is_reported_and_ignored(tmp_path):
    home = tmp_path / "h"
    home.mkdir()
    (home / SNAPSHOT_FILE).write_bytes(b'{"version": "x"')
    async with router_process(home) as router:
        assert (await ask(router.address, "GET", "/readyz")).status == 503
        assert "snapshot_on_disk_unreadable" in router.log.read_text()


async def test_it_follows_control_acknowledges_and_keeps_the_snapshot_through_a_restart(tmp_path):
    home = tmp_path / "h"
    home.mkdir()
    async with fake_replicas(tmp_path, 2) as replicas, fake_control(home) as control:
        control.push(snapshot_of(replicas[0], version=5))
        async with router_process(home) as router:
            await until(lambda: 5 in control.acknowledged)
            assert (await router.ask({})).headers["x-replica"] == "m-1-0"
            control.push(snapshot_of(replicas[1], version=6))
            await until(lambda: 6 in control.acknowledged)
            assert (await router.ask({})).headers["x-replica"] == "m-1-1"
            assert msgspec.json.decode((home / SNAPSHOT_FILE).read_bytes(), type=Snapshot).version == 6
            assert (home / SNAPSHOT_FILE).stat().st_mode & 0o777 == 0o600
    async with fake_replicas(tmp_path, 2), router_process(home) as router:
        assert (await router.ask({})).headers["x-replica"] == "m-1-1"


async def test_a_snapshot_that_cannot_be_applied_changes_nothing_and_the_next_one_does(tmp_path):
    async with fake_replicas(tmp_path, 2) as (first, second), fake_control(tmp_path / "h") as control:
        control.push(snapshot_of(first, version=1))
        async with router_process(tmp_path / "h") as router:
            await until(lambda: 1 in control.acknowledged)
            faulty = FakeReplica("m-1-2", "nowhere")
            control.push(snapshot_of(second, faulty, version=2))
            await until(lambda: control.acknowledged.count(1) >= 3)  # it asks again, and goes on
            for _ in range(5):
                assert (await router.ask({})).headers["x-replica"] == first.name
            assert (await router.ledger())["snapshot_version"] == 1
            refused = b"steelyard_router_snapshots_refused_total"
            (line,) = [line for line in (await router.admin("/metrics")).body.splitlines() if line.startswith(refused)]
            assert float(line.split()[1]) >= 1
            assert router.log.read_text().count('"snapshot_not_applied"') == 1
            control.push(snapshot_of(second, version=3))
            await until(lambda: 3 in control.acknowledged)
            assert (await router.ask({})).headers["x-replica"] == second.name
            assert (await router.at_rest())["snapshot_version"] == 3


async def test_losing_control_leaves_traffic_untouched_and_it_reconnects(tmp_path):
    home = tmp_path / "h"
    home.mkdir()
    async with fake_replicas(tmp_path, 2) as replicas:
        async with fake_control(home) as control:
            control.push(snapshot_of(replicas[0], version=1))
            router_context = router_process(home)
            router = await router_context.__aenter__()
            await until(lambda: 1 in control.acknowledged)
        try:
            for _ in range(10):
                assert (await router.ask({})).status == 200
            async with fake_control(home) as control:
                control.push(snapshot_of(replicas[1], version=2))
                await until(lambda: 2 in control.acknowledged)
                assert (await router.ask({})).headers["x-replica"] == "m-1-1"
        finally:
            await router_context.__aexit__(None, None, None)


async def test_sigterm_lets_running_and_waiting_requests_finish_and_exits_0(tmp_path):
    async with (
        fake_replicas(tmp_path) as (replica,),
        router_process(tmp_path / "h", snapshot_of(replica, max_concurrency=1)) as router,
    ):
        running, waiting, idle = [await RawClient.open(router.address) for _ in range(3)]
        for client in (running, waiting):
            client.request("POST", INVOCATIONS, b'{"do":"hold"}', authorization=BEARER)
        await until(lambda: len(replica.held) == 1)
        async with asyncio.timeout(5):
            while not (await router.ledger())["queued"]:
                await asyncio.sleep(0.01)
        router.stop()
        assert await idle.ended()
        with pytest.raises((OSError, EOFError)):
            await ask(router.address, "GET", "/livez")
        for client in (running, waiting):
            await until(lambda: replica.held)
            replica.release()
            reply = await client.reply()
            assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await router.exit_status() == 0
        assert "router_stopped" in router.log.read_text()
        assert not os.path.exists(router.settings.router_address(0).removeprefix("unix:"))


async def test_a_drain_ends_after_its_timeout_and_tells_the_replica(tmp_path):
    async with (
        fake_replicas(tmp_path) as (replica,),
        router_process(tmp_path / "h", snapshot_of(replica), drain_timeout_s=0.3) as router,
    ):
        client = await RawClient.open(router.address)
        client.request("POST", INVOCATIONS, b'{"do":"hold"}', authorization=BEARER)
        await until(lambda: replica.held)
        router.stop(signal.SIGINT)
        assert await router.exit_status() == 0
        await until(lambda: replica.gone == 1)
        assert await client.ended()


async def test_the_end_of_the_lifeline_ends_the_router(tmp_path):
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    async with (
        fake_replicas(tmp_path) as (replica,),
        router_process(tmp_path / "h", snapshot_of(replica), lifeline_fd=reader, pass_fds=(reader,)) as router,
    ):
        os.close(reader)
        assert (await router.ask({})).status == 200
        os.close(writer)
        assert await router.exit_status() == 0


async def test_a_thousand_requests_are_all_answered_while_replicas_come_and_go(tmp_path):
    home = tmp_path / "h"
    home.mkdir()
    async with fake_replicas(tmp_path, 3) as replicas, fake_control(home) as control:
        control.push(snapshot_of(*replicas, version=1))
        async with router_process(home) as router:
            await until(lambda: 1 in control.acknowledged)
            statuses = []

            async def client(number: int) -> None:
                connection = await RawClient.open(router.address)
                for index in range(50):
                    body = json.dumps({"n": [number, index]}).encode()
                    connection.request("POST", INVOCATIONS, body, authorization=BEARER)
                    reply = await connection.reply()
                    statuses.append(reply.status)
                    assert json.loads(reply.body)["n"] == [number, index]
                connection.close()

            async def churn() -> None:
                for step in range(6):
                    replica = replicas[step % 3]
                    await replica.kill()
                    control.push(snapshot_of(*(r for r in replicas if r.server), version=2 + 2 * step))
                    await asyncio.sleep(0.05)
                    await replica.start()
                    control.push(snapshot_of(*replicas, version=3 + 2 * step))
                    await asyncio.sleep(0.05)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(churn())
                for number in range(20):
                    tasks.create_task(client(number))
            assert statuses == [200] * 1000
            await router.at_rest()


async def test_it_tells_what_came_what_runs_and_what_waits_and_settles_it_whatever_happened(tmp_path):
    async with fake_replicas(tmp_path) as (replica,):
        snapshot = snapshot_of(replica, max_concurrency=2)
        async with router_process(tmp_path / "h", snapshot) as router:

            async def demand() -> dict:
                report = json.loads((await router.admin("/demand")).body)
                report["entities"][0]["outstanding_mmu"] = report["outstanding_mmu"]["m-1-0"]
                return report["entities"][0]

            assert (await router.ask({"do": "status", "status": 400})).status == 400
            held = [asyncio.create_task(router.ask({"do": "hold"})) for _ in range(4)]
            async with asyncio.timeout(8):
                while (now := await demand())["queued"] < 2:
                    await asyncio.sleep(0.01)
            each = charge_of({"do": "hold"})
            assert (now["endpoint"], now["served_entity"]) == ("m", "m-1")
            assert (now["running"], now["running_mmu"], now["outstanding_mmu"]) == (2, 2 * each, 2 * each)
            assert (now["queued"], now["queued_mmu"]) == (2, 2 * each)
            assert (now["arrived_total"], now["settled_total"]) == (5, 0)  # what is wrong took no serving
            await until(lambda: len(replica.held) == 2)
            replica.release()
            await until(lambda: len(replica.held) == 2)
            replica.release()
            assert {reply.status for reply in await asyncio.gather(*held)} == {200}
            await router.at_rest()
            now = await demand()
            assert (now["running"], now["running_mmu"], now["queued"], now["queued_mmu"]) == (0, 0, 0, 0)
            assert (now["settled_total"], now["settled_mmu_total"]) == (4, 4 * each)
            assert now["busy_s_total"] > 0
            assert now["busy_mmu_s_total"] == pytest.approx(now["busy_s_total"] * each)
