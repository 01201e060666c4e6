"""Limits, the queue, refusals, and load that is where it should be."""

from __future__ import annotations

import asyncio
import json

import pytest

from support.raw_http import until
from support.router_world import OTHER_TOKEN, world

pytestmark = pytest.mark.anyio


async def test_a_replica_never_holds_more_than_its_limit_and_waiters_go_first_come_first_served(tmp_path):
    async with world(tmp_path, 1, max_concurrency=3) as w:
        clients = []
        for n in range(12):
            clients.append(await w.begin({"do": "hold", "n": n}))
            await until(lambda n=n: w.in_flight + w.queued == n + 1)
        while w.in_flight or w.queued:
            await until(lambda: w.replicas[0].held or not w.in_flight)
            w.replicas[0].release(1)
            await asyncio.sleep(0)
        for client in clients:
            assert (await client.reply()).status == 200
        assert w.replicas[0].peak == 3
        assert [json.loads(request.body)["n"] for request in w.replicas[0].requests] == list(range(12))


@pytest.mark.parametrize("round_", range(3))
async def test_capacity_comes_back_whole_after_mass_cancellation(tmp_path, round_):
    async with world(tmp_path, 1, max_concurrency=10) as w:
        for _ in range(5):
            clients = [await w.begin({"do": "stream", "stall_after": 1}) for _ in range(60)]
            await until(lambda: w.in_flight == 10 and w.queued == 50)
            for client in clients[::2]:
                client.close()
            await until(lambda: w.in_flight + w.queued == 30)
            assert w.in_flight == 10
            for client in clients[1::2]:
                client.close()
            await w.settled()
        await until(lambda: w.replicas[0].running == 0)
        assert w.replicas[0].peak == 10
        assert (await w.ask({})).status == 200


async def test_a_burst_spreads_evenly_over_idle_replicas(tmp_path):
    async with world(tmp_path, 4) as w:
        clients = [await w.begin({"do": "hold"}) for _ in range(32)]
        await until(lambda: sum(len(replica.held) for replica in w.replicas) == 32)
        assert [len(replica.held) for replica in w.replicas] == [8, 8, 8, 8]
        for replica in w.replicas:
            replica.release()
        for client in clients:
            assert (await client.reply()).status == 200


async def test_a_hung_replica_does_not_starve_the_others(tmp_path):
    async with world(tmp_path, 2, max_concurrency=4) as w:
        clients = [await w.begin({"do": "hold"}) for _ in range(8)]
        await until(lambda: all(len(replica.held) == 4 for replica in w.replicas))
        w.replicas[1].release()  # the other one hangs with all its places taken
        for _ in range(20):
            assert (await w.ask({})).status == 200
        assert w.router.ledger.by_replica() == {"m-1-0": 4, "m-1-1": 0}
        w.replicas[0].release()
        for client in clients:
            assert (await client.reply()).status == 200


async def test_a_full_queue_is_429_with_retry_after(tmp_path):
    async with world(tmp_path, 1, max_concurrency=1, queue_limit=2) as w:
        clients = []
        for n in range(3):
            clients.append(await w.begin({"do": "hold"}))
            await until(lambda n=n: w.in_flight + w.queued == n + 1)
        reply = await w.ask({})
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert json.loads(reply.body)["error_code"] == "RESOURCE_EXHAUSTED"
        for client in clients:
            client.close()


async def test_without_a_replica_it_is_503_unless_replicas_are_on_their_way(tmp_path):
    async with world(tmp_path, 1) as w:
        w.apply()
        reply = await w.ask({})
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        w.apply(recovering=True)
        client = await w.begin({})
        await until(lambda: w.queued == 1)
        w.apply(w.replicas[0])
        assert (await client.reply()).status == 200


async def test_requests_held_for_a_recovery_end_when_it_fails_or_the_deadline_passes(tmp_path):
    async with world(tmp_path, 0) as w:
        w.apply(recovering=True)
        late = await w.begin({}, x_request_timeout_ms="100")
        failed = await w.begin({})
        assert (await late.reply()).status == 504
        w.apply()
        assert (await failed.reply()).status == 503


async def test_a_request_whose_replica_was_the_last_is_told_at_once(tmp_path):
    async with world(tmp_path, 1) as w:
        client = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        w.apply()
        await w.replicas[0].kill()
        reply = await client.reply()
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1


async def test_requests_on_a_replica_that_leaves_the_snapshot_go_on(tmp_path):
    async with world(tmp_path, 2) as w:
        clients = [await w.begin({"do": "hold"}) for _ in range(4)]
        await until(lambda: sum(len(replica.held) for replica in w.replicas) == 4)
        w.apply(w.replicas[0])
        assert w.in_flight == 4
        for replica in w.replicas:
            replica.release()
        for client in clients:
            assert (await client.reply()).status == 200
        await w.settled()
        assert set(w.router.ledger.by_replica()) == {"m-1-0"}


async def test_a_new_snapshot_keeps_load_and_connections(tmp_path):
    async with world(tmp_path, 1) as w:
        await w.ask({})
        client = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        w.apply(w.replicas[0])
        assert w.in_flight == 1
        assert w.router.ledger.by_replica() == {"m-1-0": 1}
        w.replicas[0].release()
        await client.reply()
        await w.ask({})
        assert len(w.replicas[0].server.connections) == 1


async def test_an_entity_renamed_by_an_update_hands_its_waiters_on(tmp_path):
    async with world(tmp_path, 1) as w:
        w.apply(recovering=True)
        moving = await w.begin({})
        pinned = await w.begin({}, "/serving-endpoints/m/served-models/m-1/invocations")
        await until(lambda: w.queued == 2)
        view = w.endpoint(w.replicas[0])
        served = [
            type(view.served_entities[0])(name="m-2", traffic_percentage=100, replicas=view.served_entities[0].replicas)
        ]
        w.apply_endpoints(type(view)(name="m", creation_timestamp=0, creator="me", served_entities=served))
        reply = await moving.reply()
        assert (reply.status, reply.headers["served-model-name"]) == (200, "m-2")
        assert (await pinned.reply()).status == 404


async def test_waiters_of_a_removed_entity_join_at_the_end_of_their_heirs_line(tmp_path):
    async with world(tmp_path, 1, max_concurrency=1) as w:
        view = w.endpoint(w.replicas[0])
        served = type(view.served_entities[0])
        old = served(name="old", traffic_percentage=100, recovering=True)
        heir = served(name="heir", traffic_percentage=0, recovering=True)
        w.apply_endpoints(type(view)(name="m", creation_timestamp=0, creator="me", served_entities=[old, heir]))
        clients = []
        for n, path in enumerate(["served-models/heir/invocations"] * 2 + ["invocations"] * 2):
            clients.append(await w.begin({"n": n}, f"/serving-endpoints/m/{path}"))
            await until(lambda n=n: w.queued == n + 1)
        heir = served(name="heir", traffic_percentage=100, replicas=view.served_entities[0].replicas)
        w.apply_endpoints(type(view)(name="m", creation_timestamp=0, creator="me", served_entities=[heir]))
        for client in clients:
            assert (await client.reply()).status == 200
        assert [json.loads(request.body)["n"] for request in w.replicas[0].requests] == [0, 1, 2, 3]


async def test_waiting_requests_of_a_deleted_or_stopped_endpoint_are_told(tmp_path):
    async with world(tmp_path, 1) as w:
        w.apply(recovering=True)
        deleted = await w.begin({})
        await until(lambda: w.queued == 1)
        w.apply_endpoints()
        assert (await deleted.reply()).status == 404
        w.apply(recovering=True)
        stopped = await w.begin({})
        await until(lambda: w.queued == 1)
        w.apply_endpoints(w.endpoint(stopped=True))
        reply = await stopped.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (400, "INVALID_STATE")


async def test_overload_is_refused_and_passes_without_a_trace(tmp_path):
    async with world(tmp_path, 1, max_concurrency=2, queue_limit=5) as w:
        w.replicas[0].always = "hold"
        clients = [await w.begin({}) for _ in range(40)]
        await until(lambda: w.in_flight == 2 and w.queued == 5)
        w.replicas[0].always = "echo"
        w.replicas[0].release()
        statuses = [(await client.reply()).status for client in clients]
        assert set(statuses) == {200, 429}
        for _ in range(5):  # no mark, no memory of it
            assert (await w.ask({})).status == 200


async def _served(w, clients):
    """Let them go one by one; the numbers of what reached the replica, in that order."""
    for _ in clients:
        await until(lambda: w.replicas[0].held or not w.in_flight)
        w.replicas[0].release(1)
    replies = [await client.reply() for client in clients]
    return [json.loads(request.body)["n"] for request in w.replicas[0].requests], [reply.status for reply in replies]


async def _begin_all(w, *requests):
    clients = []
    for n, headers in enumerate(requests):
        before = w.in_flight + w.queued
        clients.append(await w.begin({"do": "hold", "n": n}, **headers))
        await until(lambda before=before: w.in_flight + w.queued == before + 1)
    return clients


BATCH = {"x_steelyard_priority": "batch"}
OTHER = {"authorization": f"Bearer {OTHER_TOKEN}"}


async def test_batch_waits_for_interactive_and_the_replica_learns_which_is_which(tmp_path):
    async with world(tmp_path, 1, max_concurrency=1) as w:
        clients = await _begin_all(w, {}, BATCH, BATCH, {}, {"x_steelyard_priority": "probe"})
        order, statuses = await _served(w, clients)
        assert order == [0, 3, 4, 1, 2]
        assert statuses == [200] * 5
        priorities = [request.header(b"x-steelyard-priority") for request in w.replicas[0].requests]
        assert priorities == [b"interactive"] * 3 + [b"batch"] * 2


async def test_principals_take_turns_however_many_requests_each_has_waiting(tmp_path):
    async with world(tmp_path, 1, max_concurrency=1) as w:
        clients = await _begin_all(w, {}, {}, {}, {}, {}, OTHER, OTHER)
        order, _ = await _served(w, clients)
        assert order == [0, 1, 5, 2, 6, 3, 4]


@pytest.mark.parametrize(("waits", "comes"), [(BATCH, {}), ({}, OTHER)], ids=["batch", "who has most"])
async def test_a_full_line_makes_way_and_who_gives_way_is_told_to_come_back(tmp_path, waits, comes):
    async with world(tmp_path, 1, max_concurrency=1, queue_limit=3) as w:
        clients = await _begin_all(w, {}, waits, waits, waits)
        late = await w.begin({"do": "hold", "n": 4}, **comes)
        reply = await clients.pop().reply()
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert (await w.ask({}, **waits)).status == 429
        assert w.queued == 3
        order, statuses = await _served(w, [*clients, late])
        assert order == ([0, 4, 1, 2] if waits else [0, 1, 4, 2])
        assert statuses == [200] * 4


async def test_requests_whose_replica_failed_go_before_all_that_came_later(tmp_path):
    async with world(tmp_path, 2, max_concurrency=2) as w:
        w.apply(w.replicas[1])
        clients = await _begin_all(w, {}, OTHER)
        w.apply(recovering=True)
        await w.replicas[1].kill()
        await until(lambda: w.queued == 2)
        clients += [await w.begin({"do": "hold", "n": 2})]
        await until(lambda: w.queued == 3)
        w.max_concurrency = 1
        w.apply(w.replicas[0])
        order, statuses = await _served(w, clients)
        assert set(order[:2]) == {0, 1}
        assert statuses == [200] * 3
