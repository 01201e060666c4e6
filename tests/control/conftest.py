"""Databases for the store's tests: SQLite always, PostgreSQL where a URL is given or its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

POSTGRES_VARIABLE = "STEELYARD_TEST_POSTGRES_URL"


def _program(name: str) -> str | None:
    candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(candidates[0]) if candidates else shutil.which(name)


def _as_user() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next((name for name in ("postgres", "nobody") if name in names), None)
    if user is None or shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")
    return ["runuser", "-u", user, "--"]


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[str]:
    """URL of a PostgreSQL server."""
    if given := os.environ.get(POSTGRES_VARIABLE):
        yield given
        return
    initdb, server, psql = _program("initdb"), _program("postgres"), _program("psql")
    if initdb is None or server is None or psql is None:
        pytest.skip(f"no PostgreSQL programs here, and {POSTGRES_VARIABLE} is not set")
    prefix = _as_user()
    with tempfile.TemporaryDirectory(prefix="sy-pg-") as place:
        folder = Path(place)
        folder.chmod(0o777)
        data = folder / "data"
        clean = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": place}
        subprocess.run(
            [*prefix, initdb, "-D", str(data), "-U", "steelyard", "-A", "trust", "--no-sync", "-E", "UTF8"],
            check=True, capture_output=True, cwd=place, env=clean,
        )  # fmt: skip
        process = subprocess.Popen(
            [*prefix, server, "-D", str(data), "-c", "listen_addresses=", "-c", f"unix_socket_directories={place}",
             "-c", "fsync=off", "-c", "max_connections=40"],
            cwd=place, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            yield _until_it_answers(psql, place)
        finally:
            process.terminate()
            process.wait(20)


def _until_it_answers(psql: str, place: str) -> str:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        asked = subprocess.run(
            [psql, "-h", place, "-U", "steelyard", "-d", "postgres", "-c", "select 1"], check=False, capture_output=True
        )
        if asked.returncode == 0:
            return f"postgresql+asyncpg://steelyard@/postgres?host={place}"
        time.sleep(0.05)
    raise AssertionError(f"PostgreSQL did not start: {asked.stderr!r}")


@pytest.fixture(params=["sqlite", "postgresql"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'store.db'}"
    url: str = request.getfixturevalue("postgres_cluster")
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
    await engine.dispose()
    return url
