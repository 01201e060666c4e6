"""Control's real API on a TCP port of this process, with a real store and no replicas, for tests of its HTTP face."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Self

import uvicorn

from steelyard.control.api.app import build_app
from steelyard.control.api.parts import Parts
from steelyard.control.calibrations import Calibrations
from steelyard.control.costs import Costs
from steelyard.control.events import Events
from steelyard.control.instruments import Instruments
from steelyard.control.operations import Operations
from steelyard.control.reconcile import Reconciler
from steelyard.control.snapshots import Snapshots
from steelyard.control.store import Store
from steelyard.policy.lease_book import LeaseBook
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate


class LiveApi:
    """Use in a `with` block. `promote` does what the reconcile loop would do once replicas are ready."""

    url: str

    def __init__(self, home: Path) -> None:
        self._settings = Settings(home=home, store_url=f"sqlite+aiosqlite:///{home / 'store.db'}", routers=0)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)

    def promote(self, name: str) -> None:
        self._do(self._promote(name))

    def fail(self, name: str, message: str) -> None:
        self._do(self._fail(name, message))

    def _do(self, coroutine) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _promote(self, name: str) -> None:
        endpoint = await self.store.endpoint(name)
        assert await self.store.promote(endpoint.id, endpoint.pending.version, 5)

    async def _fail(self, name: str, message: str) -> None:
        endpoint = await self.store.endpoint(name)
        assert await self.store.fail_update(endpoint.id, endpoint.pending.version, message, 5)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.store = await Store.open(self._settings.database_url)
        substrate = LocalSubstrate(self._settings.replicas_dir)
        snapshots, events, instruments = Snapshots(1, 1000, 0), Events(self.store), Instruments()
        reconciler = Reconciler(
            self._settings,
            store=self.store,
            substrate=substrate,
            snapshots=snapshots,
            events=events,
            instruments=instruments,
            costs=Costs(),
        )
        operations = Operations(self._settings, self.store, reconciler, events)
        calibrations = Calibrations(self._settings.calibrations_dir)
        leases = LeaseBook(2)
        app = build_app(
            Parts(self._settings, operations, snapshots, substrate, instruments, calibrations, leases, self.store.usage)
        )

        @app.get("/boom", include_in_schema=False)
        async def boom() -> None:
            raise RuntimeError("a secret detail")

        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        self._ready.set()
        await serving
        await self.store.close()
