"""Configurations that routers are offered before the store calls them active.

A user who reads READY may ask at once, so routers must know a new configuration before the API says that it serves.
The reconcile loop owns one `Offers`; each round it says which configurations could be promoted, publishes the snapshot
with them, and promotes them once the routers have applied it. Pure state, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from steelyard.control.records import EndpointRecord

PATIENCE_S = 2.0  # a router that has not applied an offer by then is taken for gone


@dataclass(frozen=True, slots=True)
class _Offer:
    version: int
    since_s: float
    published_at: int | None = None


class Offers:
    def __init__(self) -> None:
        self._offers: dict[str, _Offer] = {}

    def renew(self, promotable: Mapping[str, int], now_s: float) -> None:
        """`promotable`: configuration version by endpoint id. An offer that is not among them is withdrawn."""
        before = self._offers
        self._offers = {
            endpoint_id: before[endpoint_id]
            if endpoint_id in before and before[endpoint_id].version == version
            else _Offer(version, now_s)
            for endpoint_id, version in promotable.items()
        }

    def as_if_promoted(self, endpoints: Iterable[EndpointRecord]) -> list[EndpointRecord]:
        """The endpoints as routers should see them."""
        return [self._seen(endpoint) for endpoint in endpoints]

    def published(self, version: int) -> None:
        """The snapshot `version` holds all present offers."""
        self._offers = {
            endpoint_id: offer if offer.published_at is not None else replace(offer, published_at=version)
            for endpoint_id, offer in self._offers.items()
        }

    def is_due(self, endpoint_id: str, released: Callable[[int], bool], now_s: float) -> bool:
        """Whether the offer may become the active configuration: routers have applied it, or took too long."""
        offer = self._offers.get(endpoint_id)
        if offer is None or offer.published_at is None:
            return False
        return released(offer.published_at) or now_s - offer.since_s >= PATIENCE_S

    def _seen(self, endpoint: EndpointRecord) -> EndpointRecord:
        offer = self._offers.get(endpoint.id)
        if offer is None or endpoint.pending is None or endpoint.pending.version != offer.version:
            return endpoint
        return replace(endpoint, active=endpoint.pending, pending=None)
