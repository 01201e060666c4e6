"""Routers get each snapshot at once, and their polls tell what they have applied."""

import asyncio

import msgspec
import pytest

from steelyard.contracts.snapshot import CostView, EndpointView, RateLimitView, ReplicaView, Snapshot
from steelyard.control.definitions import build_config, build_entity
from steelyard.control.records import ConfigRecord, EndpointRecord, TokenRecord
from steelyard.control.snapshots import Serving, Snapshots, build, key_of
from steelyard.control.states import Deployment, EntityStatus
from steelyard.errors import Unavailable

pytestmark = pytest.mark.anyio


def content(*names: str) -> Snapshot:
    return Snapshot(version=0, endpoints=[EndpointView(name=name, creation_timestamp=1, creator="a") for name in names])


def decoded(body: bytes) -> Snapshot:
    return msgspec.json.decode(body, type=Snapshot)


async def test_first_poll_is_answered_at_once_and_the_next_waits_for_a_change():
    snapshots = Snapshots(10, 1000, routers=1)
    snapshots.publish(content("a"))
    first = decoded(await snapshots.poll(-1, 0, 5))
    assert first.version == 10
    waiting = asyncio.create_task(snapshots.poll(10, 0, 5))
    await asyncio.sleep(0)
    snapshots.publish(content("a", "b"))
    second = decoded(await waiting)
    assert (second.version, len(second.endpoints)) == (11, 2)


async def test_same_content_makes_no_new_version():
    snapshots = Snapshots(1, 1000, routers=1)
    assert snapshots.publish(content("a")) == snapshots.publish(content("a")) == 1


async def test_poll_ends_when_its_time_is_over():
    snapshots = Snapshots(1, 1000, routers=1)
    snapshots.publish(content("a"))
    assert decoded(await snapshots.poll(1, 0, 0.01)).version == 1


async def test_poll_before_the_first_snapshot_waits_then_is_unavailable():
    snapshots = Snapshots(1, 1000, routers=1)
    with pytest.raises(Unavailable):
        await snapshots.poll(-1, 0, 0.01)


async def test_version_is_released_when_every_router_has_applied_it():
    snapshots = Snapshots(1, 1000, routers=2)
    woken = []
    snapshots.on_applied = lambda: woken.append(1)
    version = snapshots.publish(content("a"))
    await snapshots.poll(version, 0, 0)
    assert not snapshots.released(version)
    await snapshots.poll(-1, 1, 0)
    assert not snapshots.released(version)
    await snapshots.poll(version, 1, 0)
    assert snapshots.released(version)
    assert woken


async def test_a_stranger_router_or_a_version_never_published_acknowledges_nothing():
    snapshots = Snapshots(1, 1000, routers=1)
    version = snapshots.publish(content("a"))
    await snapshots.poll(version, 7, 0)
    await snapshots.poll(version + 50, 0, 0)
    assert not snapshots.released(version)


async def test_close_lets_waiting_polls_end():
    snapshots = Snapshots(1, 1000, routers=1)
    snapshots.publish(content("a"))
    waiting = asyncio.create_task(snapshots.poll(1, 0, 60))
    await asyncio.sleep(0)
    snapshots.close()
    await asyncio.wait_for(waiting, 1)


async def test_versions_go_on_past_the_reserved_ones_while_the_store_is_down():
    snapshots = Snapshots(1, 3, routers=1)
    versions = [snapshots.publish(content(f"e{n}")) for n in range(5)]
    assert versions == [1, 2, 3, 4, 5]
    assert snapshots.needs_versions
    snapshots.extend(3, 1003)
    assert snapshots.publish(content("later")) == 6
    assert not snapshots.needs_versions


def endpoint(**more) -> EndpointRecord:
    entities = [build_entity({"name": name, "entity_name": f"/{name}"}, "e", lambda path: path) for name in "ab"]
    from steelyard.control.definitions import RouteDefinition

    routes = [RouteDefinition(served_entity_name="a", traffic_percentage=100)]
    config = ConfigRecord(1, "ada", 1, build_config(entities, routes, ""))
    return EndpointRecord("id", "e", "ada", 1, 1, **({"active": config} | more))


def test_snapshot_holds_ready_replicas_shares_and_who_is_awaited():
    limits = (RateLimitView(key="user", calls=3),)
    record = endpoint(rate_limits=limits)
    key = key_of(record, record.active.definition.entities[0])
    replica = ReplicaView(id="r", address="unix:/r", max_concurrency=2)
    statuses = {"id": {"b": EntityStatus(Deployment.RECOVERING)}}
    token = TokenRecord("t", "f" * 64, "ada", "", 1, groups=("g",))
    costs = {("id", "a"): CostView(coefficients={"row": 0.5})}
    made = build(
        [record], {key: Serving([replica], task="llm/v1/chat")}, statuses, [token],
        auth=True, cost_of=lambda endpoint_id, entity: costs.get((endpoint_id, entity.name)),
    )  # fmt: skip
    (view,) = made.endpoints
    a, b = view.served_entities
    assert (a.replicas, a.traffic_percentage, a.task, a.recovering) == ([replica], 100, "llm/v1/chat", False)
    assert (b.replicas, b.traffic_percentage, b.recovering) == ([], 0, True)
    assert (a.cost, b.cost) == (CostView(coefficients={"row": 0.5}), None)
    assert (made.tokens[0].sha256, made.tokens[0].groups) == ("f" * 64, ["g"])
    assert view.rate_limits == list(limits)


def test_stopped_and_never_ready_endpoints_are_known_but_serve_nothing():
    assert build([endpoint(stopped=True)], {}, {}, [], auth=True).endpoints[0].stopped
    assert build([endpoint(active=None)], {}, {}, [], auth=True).endpoints[0].served_entities == []
