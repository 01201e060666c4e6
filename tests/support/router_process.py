"""The real router process in front of fake replicas that live in the loop of the test."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from steelyard.contracts.snapshot import EndpointView, ReplicaView, ServedEntityView, Snapshot, TokenView
from steelyard.router.snapshot import SNAPSHOT_FILE
from steelyard.settings import HttpLimits, Settings
from steelyard.wire.server import HttpServer, Reply, Request
from support.fake_replica import FakeReplica
from support.raw_http import RawReply, ask

TOKEN = "test-token"
BEARER = f"Bearer {TOKEN}"
INVOCATIONS = "/serving-endpoints/m/invocations"


def snapshot_of(
    *replicas: FakeReplica, version: int = 1, max_concurrency: int = 8, recovering: bool = False, **more: Any
) -> Snapshot:
    """One endpoint `m` with these replicas, one token."""
    views = [ReplicaView(id=r.name, address=r.address, max_concurrency=max_concurrency) for r in replicas]
    entity = ServedEntityView(name="m-1", traffic_percentage=100, replicas=views, **more)
    endpoint = EndpointView(name="m", creation_timestamp=0, creator="me", served_entities=[entity])
    token = TokenView(sha256=hashlib.sha256(TOKEN.encode()).hexdigest(), principal="me")
    return Snapshot(version=version, tokens=[token], endpoints=[endpoint])


class RouterProcess:
    """A started router; `settings`, `process`, `log` (a file) and what its sockets say."""

    def __init__(self, settings: Settings, process: asyncio.subprocess.Process, log: Path, index: int) -> None:
        self.settings = settings
        self.index = index
        self.process = process
        self.log = log
        self.address = f"tcp:{settings.host}:{settings.port}"

    async def ask(self, command: dict[str, Any], path: str = INVOCATIONS, **headers: str) -> RawReply:
        return await ask(self.address, "POST", path, json.dumps(command).encode(), authorization=BEARER, **headers)

    async def admin(self, path: str) -> RawReply:
        return await ask(self.settings.router_address(self.index), "GET", path)

    async def ledger(self) -> dict[str, Any]:
        return json.loads((await self.admin("/ledger")).body)

    async def at_rest(self) -> dict[str, Any]:
        """Wait for an empty ledger and check it."""
        async with asyncio.timeout(8):
            while (ledger := await self.ledger())["live"] or ledger["in_flight"] or ledger["queued"]:
                await asyncio.sleep(0.01)
        assert not any(ledger["by_replica"].values())
        assert ledger["outstanding_mmu"] == ledger["queued_bytes"] == 0
        assert ledger["charged_total_mmu"] == ledger["settled_total_mmu"]
        return ledger

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def exit_status(self, timeout_s: float = 10.0) -> int:
        return await asyncio.wait_for(self.process.wait(), timeout_s)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def played_control(home: Path, handle: Callable[[Request, Reply], None]):
    """What a test plays as control answers where a router with this home asks."""
    settings = Settings(home=home)
    settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    server = HttpServer(handle, HttpLimits())
    await server.listen(settings.control_address)
    try:
        yield
    finally:
        await server.stop(0.0)


@asynccontextmanager
async def router_process(
    home: Path, snapshot: Snapshot | None = None, *, index: int = 0, pass_fds: tuple[int, ...] = (), **options: Any
):
    """Start a router whose snapshot lies on disk; without control unless a test plays it. Ends it when left."""
    home.mkdir(exist_ok=True)
    settings = Settings(home=home, port=free_port(), **options)
    settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    if snapshot is not None:
        (home / SNAPSHOT_FILE).write_bytes(msgspec.json.encode(snapshot))
    log = home / f"router-{index}.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "steelyard.router", "--index", str(index),
            env={**os.environ, **settings.to_env()}, stderr=stderr, pass_fds=pass_fds,
        )  # fmt: skip
    router = RouterProcess(settings, process, log, index)
    try:
        await _answering(router)
        yield router
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answering(router: RouterProcess) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await ask(router.address, "GET", "/livez")
                return
            except (OSError, EOFError):
                assert router.process.returncode is None, router.log.read_text()
                await asyncio.sleep(0.02)


@asynccontextmanager
async def fake_replicas(folder: Path, count: int = 1):
    """So many listening replicas."""
    replicas = [FakeReplica(f"m-1-{index}", f"unix:{folder / f'm-1-{index}.sock'}") for index in range(count)]
    for replica in replicas:
        await replica.start()
    try:
        yield replicas
    finally:
        for replica in replicas:
            await replica.kill()
