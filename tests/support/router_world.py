"""A router with its public port, in the loop of the test, in front of fake replicas: the smallest whole world."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from steelyard.contracts.snapshot import EndpointView, RateLimitView, ReplicaView, ServedEntityView, Snapshot, TokenView
from steelyard.router.app import Router
from steelyard.router.weigh import Weigher
from steelyard.settings import HttpLimits, Settings
from steelyard.wire.server import HttpServer
from support.fake_replica import FakeReplica
from support.raw_http import RawClient, RawReply, ask, until

TOKEN = "test-token"
OTHER_TOKEN = "other-token"  # of another principal
INVOCATIONS = "/serving-endpoints/m/invocations"


def charge_of(*commands: dict[str, Any] | bytes) -> int:
    """Milli-MU that one attempt of each is charged while nothing was learnt."""
    bodies = [command if isinstance(command, bytes) else json.dumps(command).encode() for command in commands]
    return sum(Weigher().weigh(body, None, "me", None, several=False).ask.mmu for body in bodies)


class World:
    """`router`, `replicas` (all of endpoint `m`, entity `m-1`), and the address of the public port."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.router = Router(settings, Random(1))
        self.replicas: list[FakeReplica] = []
        self.version = 0
        self.max_concurrency = 10
        self.address = ""
        self.groups: dict[str, list[str]] = {}  # by principal

    async def add_replica(self) -> FakeReplica:
        """One more replica that listens, not yet in the snapshot."""
        name = f"m-1-{len(self.replicas)}"
        replica = FakeReplica(name, f"unix:{self.folder / name}")
        await replica.start()
        self.replicas.append(replica)
        return replica

    def apply(self, *replicas: FakeReplica, **entity: Any) -> None:
        """A new snapshot in which endpoint `m` has these replicas."""
        self.apply_endpoints(self.endpoint(*replicas, **entity))

    def limit(self, *limits: RateLimitView, **entity: Any) -> None:
        """A new snapshot in which endpoint `m` has all replicas and these rate limits."""
        view = self.endpoint(*self.replicas, **entity)
        self.apply_endpoints(msgspec.structs.replace(view, rate_limits=list(limits)))

    def endpoint(self, *replicas: FakeReplica, name: str = "m", stopped: bool = False, **entity: Any) -> EndpointView:
        views = [
            ReplicaView(id=replica.name, address=replica.address, max_concurrency=self.max_concurrency)
            for replica in replicas
        ]
        served = ServedEntityView(**{"name": f"{name}-1", "traffic_percentage": 100, "replicas": views, **entity})
        return EndpointView(
            name=name, creation_timestamp=1_700_000_000_000, creator="me", stopped=stopped, served_entities=[served]
        )

    def apply_endpoints(self, *endpoints: EndpointView) -> None:
        self.version += 1
        principals = {TOKEN: "me", OTHER_TOKEN: "other"}
        tokens = [
            TokenView(
                sha256=hashlib.sha256(token.encode()).hexdigest(),
                principal=principal,
                groups=self.groups.get(principal, []),
            )
            for token, principal in principals.items()
        ]
        self.router.apply(Snapshot(version=self.version, tokens=tokens, endpoints=list(endpoints)))

    async def ask(self, command: dict[str, Any], path: str = INVOCATIONS, **headers: str) -> RawReply:
        headers = {"authorization": f"Bearer {TOKEN}", **headers}
        return await ask(self.address, "POST", path, json.dumps(command).encode(), **headers)

    async def begin(self, command: dict[str, Any], path: str = INVOCATIONS, **headers: str) -> RawClient:
        """Send a request on a connection of its own and do not wait for the reply."""
        client = await RawClient.open(self.address)
        client.request("POST", path, json.dumps(command).encode(), **{"authorization": f"Bearer {TOKEN}", **headers})
        return client

    @property
    def in_flight(self) -> int:
        return self.router.ledger.in_flight

    @property
    def queued(self) -> int:
        return self.router.totals.requests

    async def settled(self) -> None:
        """Wait until nothing is left, and check that nothing was lost: the invariant of every test."""
        router = self.router
        await until(lambda: not router.live)
        ledger = router.ledger
        assert ledger.in_flight == ledger.outstanding_mmu == 0
        assert ledger.charged_total_mmu == ledger.settled_total_mmu
        assert (router.totals.requests, router.totals.body_bytes) == (0, 0)
        assert not any(ledger.by_replica().values())


@asynccontextmanager
async def world(folder: Path, replicas: int = 1, *, max_concurrency: int = 10, **settings: Any):
    """A running world with so many replicas in the snapshot; leaving it checks that it is settled."""
    made = World(folder, Settings(home=folder, **settings))
    made.max_concurrency = max_concurrency
    server = HttpServer(made.router.handle, HttpLimits(), on_head=made.router.check_head)
    await server.listen("tcp:127.0.0.1:0")
    made.address = f"tcp:127.0.0.1:{server.port}"
    for _ in range(replicas):
        await made.add_replica()
    made.apply(*made.replicas)
    sweeping = asyncio.ensure_future(_sweep(made.router))
    try:
        yield made
        await made.settled()
    finally:
        sweeping.cancel()
        await server.stop(0.0)
        for replica in made.replicas:
            await replica.kill()


async def _sweep(router: Router) -> None:
    while True:
        await asyncio.sleep(0.02)
        router.sweep()
