"""The connection to the store's database: SQLite in WAL mode, or PostgreSQL by URL, brought to the newest schema.

Used by `store.py` alone. A database that does not answer becomes `Unavailable`, never a traceback for a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import alembic.command
import alembic.config
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from steelyard.errors import Unavailable

BUSY_TIMEOUT_MS = 5_000
ANSWER_TIMEOUT_S = 10.0
_MIGRATION_LOCK = 0x57EE1  # any number that no other program locks in our database
T = TypeVar("T")


class Database:
    """Use `await Database.open(url)`, then `transaction()`; close it in the end."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._running: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(cls, url: str) -> Database:
        """Connects and migrates. Raises ValueError for a URL that cannot be used, Unavailable when nobody answers."""
        database = cls(_engine(url))
        try:
            async with database.transaction() as connection:
                if connection.dialect.name == "postgresql":
                    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                await connection.run_sync(_migrate)
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        """After all that runs."""
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._engine.dispose()

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` to its end even if the caller is cancelled meanwhile.

        A statement that is cancelled under way can leave its connection, and with it SQLite's one write lock, open
        until the garbage collector finds it: the store would stand still.
        """
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Commits at the end of the block, rolls back if it raises. Raises Unavailable when the database fails."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._engine.begin() as connection:
                yield connection
        except (TimeoutError, OSError) as error:
            raise Unavailable("The store does not answer; try again in a moment.", retry_after_s=5) from error
        except DBAPIError as error:
            if _is_our_fault(error):
                raise
            raise Unavailable("The store cannot do this now; try again in a moment.", retry_after_s=5) from error
        except SQLAlchemyError as error:
            raise Unavailable("The store cannot do this now; try again in a moment.", retry_after_s=5) from error


def _is_our_fault(error: DBAPIError) -> bool:
    """A violated constraint or a wrong statement says something about the call, not about the database's health."""
    return type(error).__name__ in {"IntegrityError", "ProgrammingError", "DataError"}


def _engine(url: str) -> AsyncEngine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ValueError(f"The store's URL cannot be read: {url.partition('://')[0]}://…") from error
    if parsed.get_backend_name() == "postgresql":
        return create_async_engine(parsed.set(drivername="postgresql+asyncpg"), pool_pre_ping=True, pool_size=5)
    if parsed.get_backend_name() != "sqlite":
        raise ValueError(f"The store can be sqlite or postgresql, not {parsed.get_backend_name()}.")
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(parsed.set(drivername="sqlite+aiosqlite"))
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions behind our back
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads, then writes, fails at once if another wrote in between: take the lock first.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _migrate(connection: Connection) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")
