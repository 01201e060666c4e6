"""One suite for both databases: what is written is found again, changes exclude each other, and faults have names."""

import asyncio
import itertools
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.contracts.snapshot import RateLimitView
from steelyard.control import database
from steelyard.control.definitions import ConfigDefinition, build_config, build_entity
from steelyard.control.records import EndpointRecord, Event, TokenRecord
from steelyard.control.store import EVENTS_PER_ENDPOINT, Store
from steelyard.control.tables import metadata
from steelyard.errors import AlreadyExists, Conflict, InvalidState, NotFound, Unavailable

pytestmark = pytest.mark.anyio


def definition(uri: str = "/m", **more) -> ConfigDefinition:
    return build_config([build_entity({"name": "m", "entity_name": uri, **more}, "e", lambda path: path)], None, "")


def endpoint(name: str = "iris") -> EndpointRecord:
    return EndpointRecord(f"id-{name}", name, "ada", 1, 1, "a flower", {"team": "x"})


@pytest.fixture
async def store(store_url):
    opened = await Store.open(store_url)
    yield opened
    await opened.close()


async def test_created_endpoint_is_found_again_by_a_store_opened_later(store, store_url):
    wanted = definition(environment_vars={"A": "ü"}, workload_size="Small")
    created = await store.create_endpoint(endpoint(), wanted)
    other = await Store.open(store_url)
    try:
        assert await other.endpoint("iris") == created
        assert await other.all_endpoints() == [created]
    finally:
        await other.close()
    assert created.pending.definition == wanted
    assert (created.pending.version, created.active, created.tags) == (1, None, {"team": "x"})


async def test_a_name_is_given_once(store):
    await store.create_endpoint(endpoint(), definition())
    with pytest.raises(AlreadyExists, match="iris"):
        await store.create_endpoint(EndpointRecord("other", "iris", "eve", 2, 2), definition())


async def test_unknown_endpoint_is_not_found(store):
    for call in (store.endpoint("no"), store.delete_endpoint("no"), store.stop_endpoint("no", 1)):
        with pytest.raises(NotFound, match="'no'"):
            await call


async def test_update_is_promoted_once_and_only_its_version(store):
    created = await store.create_endpoint(endpoint(), definition())
    assert await store.promote(created.id, 1, 5)
    updated = await store.begin_update("iris", definition("/n"), principal="bob", now_ms=6)
    assert (updated.active.version, updated.pending.version, updated.pending.creator) == (1, 2, "bob")
    assert not await store.promote(created.id, 1, 7)
    assert await store.promote(created.id, 2, 7)
    now = await store.endpoint("iris")
    assert (now.active.version, now.pending, now.active.definition.entities[0].model_uri) == (2, None, "/n")


async def test_second_update_is_refused_while_one_is_in_progress(store):
    await store.create_endpoint(endpoint(), definition())
    with pytest.raises(Conflict, match="is being updated"):
        await store.begin_update("iris", definition("/n"), principal="bob", now_ms=6)
    with pytest.raises(Conflict):
        await store.stop_endpoint("iris", 7)


async def test_of_concurrent_updates_one_wins(store):
    created = await store.create_endpoint(endpoint(), definition())
    await store.promote(created.id, 1, 5)
    calls = [store.begin_update("iris", definition(f"/{n}"), principal="p", now_ms=6) for n in range(8)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict"] * 7 + ["EndpointRecord"]


async def test_failed_update_keeps_its_reason_and_the_active_version(store):
    created = await store.create_endpoint(endpoint(), definition())
    await store.promote(created.id, 1, 5)
    await store.begin_update("iris", definition("/n"), principal="bob", now_ms=6)
    assert await store.fail_update(created.id, 2, "m: no weights", 7)
    now = await store.endpoint("iris")
    assert (now.active.version, now.pending, now.failed.version, now.failure_message) == (1, None, 2, "m: no weights")
    again = await store.begin_update("iris", definition("/o"), principal="bob", now_ms=8)
    assert (again.pending.version, again.failed, again.failure_message) == (3, None, None)


async def test_stop_keeps_the_configuration_and_start_makes_a_new_version_of_it(store):
    created = await store.create_endpoint(endpoint(), definition())
    await store.promote(created.id, 1, 5)
    with pytest.raises(InvalidState, match="not stopped"):
        await store.begin_update("iris", None, principal="p", now_ms=6, start=True)
    assert (await store.stop_endpoint("iris", 6)).stopped
    with pytest.raises(InvalidState, match="stopped already"):
        await store.stop_endpoint("iris", 7)
    with pytest.raises(InvalidState, match="start it first"):
        await store.begin_update("iris", definition("/n"), principal="p", now_ms=7)
    started = await store.begin_update("iris", None, principal="p", now_ms=8, start=True)
    assert (started.stopped, started.pending.version, started.pending.definition) == (False, 2, definition())


async def test_delete_takes_configurations_and_events_along(store):
    created = await store.create_endpoint(endpoint(), definition())
    await store.add_events([Event(created.id, 1, "k", "m")])
    await store.delete_endpoint("iris")
    assert await store.all_endpoints() == []
    assert await store.events(created.id) == []
    await store.create_endpoint(endpoint(), definition())


async def test_tags_are_added_changed_and_removed(store):
    await store.create_endpoint(endpoint(), definition())
    assert await store.change_tags("iris", {"team": "y", "k": ""}, [], 2) == {"team": "y", "k": ""}
    assert await store.change_tags("iris", {}, ["team", "unknown"], 3) == {"k": ""}
    assert (await store.endpoint("iris")).tags == {"k": ""}


async def test_events_are_bounded_per_endpoint_and_oldest_first(store):
    one = await store.create_endpoint(endpoint(), definition())
    two = await store.create_endpoint(endpoint("two"), definition())
    await store.add_events([Event(two.id, 0, "k", "kept")])
    await store.add_events([Event(one.id, n, "k", f"m{n}", "e", "r") for n in range(EVENTS_PER_ENDPOINT + 5)])
    await store.add_events([Event("deleted meanwhile", 1, "k", "m")])
    kept = await store.events(one.id)
    assert [event.time_ms for event in kept] == list(range(5, EVENTS_PER_ENDPOINT + 5))
    assert kept[0] == Event(one.id, 5, "k", "m5", "e", "r")
    assert [event.message for event in await store.events(two.id)] == ["kept"]
    assert [event.time_ms for event in await store.events(one.id, limit=2)] == [1003, 1004]


async def test_what_a_model_printed_last_can_be_kept_whatever_it_is(store):
    await store.create_endpoint(endpoint(), definition())
    await store.add_events([Event("id-iris", 1, "replica_died", "its last lines: \0\0 \x1b[31m \ufffd")])
    assert [event.message for event in await store.events("id-iris")] == [
        "its last lines: \ufffd\ufffd \x1b[31m \ufffd"
    ]
    await store.fail_update("id-iris", 1, "m: a\0b", 2)
    assert (await store.endpoint("iris")).failure_message == "m: a\ufffdb"


async def test_last_token_cannot_be_deleted(store):
    first, second = TokenRecord("t1", "a" * 64, "ada", "", 1), TokenRecord("t2", "b" * 64, "bob", "c", 2, 9)
    await store.add_token(first)
    await store.add_token(second)
    assert await store.tokens() == [first, second]
    with pytest.raises(NotFound):
        await store.delete_token("t3")
    await store.delete_token("t2")
    with pytest.raises(InvalidState, match="only token"):
        await store.delete_token("t1")
    assert (first.valid_at(10**15), second.valid_at(8), second.valid_at(9)) == (True, True, False)


async def test_versions_are_reserved_for_one_caller_each(store):
    spans = await asyncio.gather(*(store.reserve_versions(10) for _ in range(4)), return_exceptions=True)
    good = sorted(span for span in spans if isinstance(span, tuple))
    assert len(good) >= 1
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(good))
    later = await store.reserve_versions(10)
    assert later[0] >= good[-1][1]


async def test_migrations_make_exactly_the_tables_that_the_code_uses(store):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    async with store._database.transaction() as connection:
        differences = await connection.run_sync(
            lambda sync: compare_metadata(MigrationContext.configure(sync), metadata)
        )
    assert differences == []


async def test_a_store_of_the_first_version_is_brought_up_with_what_is_in_it(store_url):
    import alembic.command
    import alembic.config

    def first_version_only(connection, _revision):
        config = alembic.config.Config()
        config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "0001")

    opened = database.Database(database._engine(store_url))
    async with opened.transaction() as connection:
        await connection.run_sync(first_version_only, None)
        old = "INSERT INTO tokens (id, sha256, principal, comment, created_ms) VALUES ('t', 'hash', 'ada', '', 1)"
        await connection.exec_driver_sql(old)
    await opened.close()
    later = await Store.open(store_url)
    try:
        assert await later.tokens() == [TokenRecord("t", "hash", "ada", "", 1)]
        assert await later.all_endpoints() == []
    finally:
        await later.close()


async def test_rate_limits_are_kept_and_replaced(store):
    limits = (RateLimitView(key="user", calls=5), RateLimitView(key="user_group", principal="g", model_units=7))
    await store.create_endpoint(replace(endpoint(), rate_limits=limits[:1]), definition())
    assert (await store.endpoint("iris")).rate_limits == limits[:1]
    assert (await store.set_rate_limits("iris", limits, 9)).rate_limits == limits
    assert [found.rate_limits for found in await store.all_endpoints()] == [limits]
    assert (await store.set_rate_limits("iris", [], 10)).rate_limits == ()
    with pytest.raises(NotFound):
        await store.set_rate_limits("no", [], 1)


async def test_locked_sqlite_file_is_unavailable_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "store.db"
    store = await Store.open(f"sqlite+aiosqlite:///{path}")
    holder = sqlite3.connect(path)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(Unavailable, match="try again"):
            await store.all_endpoints()
    finally:
        holder.rollback()
        holder.close()
    assert await store.all_endpoints() == []
    await store.close()


async def test_unreachable_postgres_is_unavailable(tmp_path):
    with pytest.raises(Unavailable):
        await Store.open(f"postgresql+asyncpg://nobody@/x?host={tmp_path}")


@pytest.mark.parametrize("url", ["mysql://h/d", "nonsense"])
async def test_url_that_cannot_be_used_is_refused_without_its_secrets(url):
    with pytest.raises(ValueError, match="store"):
        await Store.open(url)


async def test_cancelled_calls_leave_no_lock_behind(tmp_path):
    path = tmp_path / "store.db"
    store = await Store.open(f"sqlite+aiosqlite:///{path}")
    await store.create_endpoint(endpoint(), definition())
    for step in range(40):  # cancelled at another point each time
        call = store.all_endpoints() if step % 2 else store.add_events([Event("id-iris", 1, "k", "m")])
        task = asyncio.create_task(call)
        for _ in range(step):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0001 * step)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(store.close(), 10)
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.close()
