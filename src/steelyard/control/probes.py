"""Asks replicas how they are, over their sockets, one task each, so that a mute one delays nobody else.

The reconcile loop says whom to watch and hears each answer. It never decides anything about a replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import msgspec

from steelyard.contracts.replica import ReplicaStatus

ANSWER_TIMEOUT_S = 2.0
FIRST_INTERVAL_S = 0.05
STARTING_INTERVAL_S = 0.5
READY_INTERVAL_S = 2.0

Hear = Callable[[str, ReplicaStatus], None]


class Probes:
    """`hear(replica_id, status)` is called on the loop for every answer. The task group owns the tasks."""

    def __init__(self, group: asyncio.TaskGroup, hear: Hear) -> None:
        self._group = group
        self._hear = hear
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def watch(self, replica_id: str, address: str) -> None:
        if replica_id not in self._tasks:
            self._tasks[replica_id] = self._group.create_task(self._probe(replica_id, address))

    def forget(self, replica_id: str) -> None:
        task = self._tasks.pop(replica_id, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        for replica_id in list(self._tasks):
            self.forget(replica_id)

    async def _probe(self, replica_id: str, address: str) -> None:
        interval_s = FIRST_INTERVAL_S
        async with client_of(address, ANSWER_TIMEOUT_S) as client:
            while True:
                status = await _ask(client)
                if status is not None:
                    self._hear(replica_id, status)
                if status is not None and status.state == "ready":
                    interval_s = READY_INTERVAL_S
                else:
                    interval_s = min(STARTING_INTERVAL_S, interval_s * 1.5)
                await asyncio.sleep(interval_s)


def client_of(address: str, timeout_s: float) -> httpx.AsyncClient:
    """An HTTP client for one of the platform's own processes at "unix:/path" or "tcp:host:port"."""
    timeout = httpx.Timeout(timeout_s)
    if address.startswith("unix:"):
        transport = httpx.AsyncHTTPTransport(uds=address.removeprefix("unix:"), verify=False)
        return httpx.AsyncClient(transport=transport, base_url="http://replica", timeout=timeout)
    transport = httpx.AsyncHTTPTransport(verify=False)
    return httpx.AsyncClient(transport=transport, base_url=f"http://{address.removeprefix('tcp:')}", timeout=timeout)


async def _ask(client: httpx.AsyncClient) -> ReplicaStatus | None:
    """None when there is no answer that makes sense."""
    try:
        reply = await client.get("/ready")
        status = msgspec.json.decode(reply.content, type=ReplicaStatus)
    except (httpx.HTTPError, OSError, msgspec.MsgspecError):
        return None
    return status if reply.status_code == 200 or status.state != "ready" else None
