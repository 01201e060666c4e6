"""Carries what several routers tell control about the rate limits that they share, and what control grants.

Only where there are several: with one router nothing of this exists. `policy/lease_holder.py` decides; the limiters'
buckets come from here, so that a request meets its share and nothing else. While control is away all goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import msgspec

from steelyard.contracts.leases import LeaseAnswer, LimitKey
from steelyard.errors import SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.policy.lease_holder import LeaseHolder
from steelyard.policy.rate_limits import BucketSource, Kind, RateLimit, Scope
from steelyard.policy.token_bucket import Bucket
from steelyard.router.table import RoutingTable
from steelyard.wire.client import Pool
from steelyard.wire.fetch import fetch

_EVERY_S = 0.25  # where some limit has a share of its own
_IDLE_EVERY_S = 0.5  # where there are limits, which may be used up soon
_UNLIMITED_EVERY_S = 1.0  # to be known when they come
_AGAIN_S = 0.02
_TIMEOUT_S = 3.0
_JSON = [(b"content-type", b"application/json")]

log = get_logger()


class Leases:
    """`index`: this router's place among `routers`."""

    def __init__(self, table: RoutingTable, pool: Pool, index: int, routers: int) -> None:
        self._table = table
        self._pool = pool
        self._opened = asyncio.Event()
        self._refused = False  # by control's last answer: one line is enough
        self._holder = LeaseHolder(index, routers, find=self._find, every=self._every, on_open=self._opened.set)

    def source_of(self, endpoint: str) -> BucketSource:
        """Gives the buckets of an endpoint's limiter."""

        def source(limit: RateLimit, whose: str, before: Bucket | None) -> Bucket:
            key = LimitKey(endpoint, int(limit.kind), limit.scope.value, whose, limit.per_minute)
            return self._holder.bucket(key, before)

        return source

    async def run(self) -> None:
        """Report and follow until cancelled."""
        while True:
            self._opened.clear()
            again = False
            try:
                again = await self._exchange()
            except SteelyardError:
                pass  # control is away, which the snapshot's feed has logged
            except Exception:  # traffic goes on with the shares that there are
                log.exception("leases_not_exchanged")
            await self._pause(again)

    async def _exchange(self) -> bool:
        report = self._holder.report(time.monotonic())
        response = await fetch(
            self._pool,
            "POST",
            b"/internal/leases",
            headers=_JSON,
            body=msgspec.json.encode(report),
            timeout_s=_TIMEOUT_S,
        )
        if response.status != 200:
            if not self._refused:
                log.warning(
                    "leases_refused", reason=f"Control answered {response.status}; the shares stay as they are."
                )
            self._refused = True
            return False
        self._refused = False
        return self._holder.follow(msgspec.json.decode(response.body, type=LeaseAnswer))

    async def _pause(self, again: bool) -> None:
        await asyncio.sleep(_AGAIN_S)
        if again:
            return
        limited = any(endpoint.limiter is not None for endpoint in self._table.endpoints.values())
        every_s = _EVERY_S if len(self._holder) else _IDLE_EVERY_S if limited else _UNLIMITED_EVERY_S
        try:
            async with asyncio.timeout(every_s):
                await self._opened.wait()
        except TimeoutError:
            pass

    def _find(self, key: LimitKey) -> Bucket | None:
        endpoint = self._table.endpoints.get(key.endpoint)
        if endpoint is None or endpoint.limiter is None:
            return None
        bucket = endpoint.limiter.bucket(Kind(key.kind), Scope(key.scope), key.principal)
        return bucket if bucket is not None and bucket.limit == key.per_minute else None

    def _every(self) -> Iterator[Bucket]:
        for endpoint in self._table.endpoints.values():
            if endpoint.limiter is not None:
                yield from endpoint.limiter.buckets()
