"""The router's own ledger, read from its admin socket: what it believes to be in flight and queued."""

from typing import Any

import httpx

from steelyard.settings import Settings
from support.platform import Platform


def read_ledger(platform: Platform, router: int = 0) -> dict[str, Any]:
    """`{"in_flight": n, "by_replica": {...}, "queued": n, ...}` of one router."""
    path = Settings(home=platform.home).router_address(router).removeprefix("unix:")
    with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://router", timeout=10) as http:
        return dict(http.get("/ledger").raise_for_status().json())


def at_rest(platform: Platform) -> bool:
    """Whether nothing is charged and nothing waits."""
    ledger = read_ledger(platform)
    return ledger["in_flight"] == 0 and ledger["queued"] == 0 and not any(ledger["by_replica"].values())
