"""What only the platform's own processes ask on control's socket: the snapshot, shares of limits, usage, signs of life.

The router refuses `/internal` to clients.
"""

from __future__ import annotations

import time

import msgspec
from fastapi import APIRouter, Request, Response

from steelyard.contracts.leases import LeaseReport
from steelyard.contracts.usage_report import UsageReport
from steelyard.control.api.parts import Given
from steelyard.errors import BadRequest

internal = APIRouter(include_in_schema=False)


@internal.get("/internal/snapshot")
async def snapshot(parts: Given, after: int = -1, router: int = -1, wait_s: float = 0.0) -> Response:
    """The routing snapshot, as `contracts.snapshot` says."""
    body = await parts.snapshots.poll(after, router, wait_s)
    return Response(body, media_type="application/json")


@internal.post("/internal/first-token")
async def first_token(parts: Given, known: str = "") -> dict[str, str | None]:
    """The administrator's token, told once; null when `known`, the SHA-256 of the caller's own, is valid here."""
    return {"token": await parts.operations.first_token(known)}


@internal.get("/internal/routers")
async def routers(parts: Given) -> dict[str, bool]:
    """Whether every router has applied the current snapshot."""
    version = parts.snapshots.version
    return {"up_to_date": version > 0 and parts.snapshots.released(version)}


@internal.post("/internal/leases")
async def leases(request: Request, parts: Given) -> Response:
    """What a router uses of the limits that routers share, answered by what it may, as `contracts.leases` says."""
    try:
        report = msgspec.json.decode(await request.body(), type=LeaseReport)
    except msgspec.DecodeError as error:
        raise BadRequest(f"The report cannot be read: {error}.") from error
    answer = parts.leases.report(report, time.monotonic())
    return Response(msgspec.json.encode(answer), media_type="application/json")


@internal.post("/internal/usage")
async def usage(request: Request, parts: Given) -> dict[str, bool]:
    """What tenants used at a router, as `contracts.usage_report` says; a report that is sent again changes nothing."""
    try:
        report = msgspec.json.decode(await request.body(), type=UsageReport)
    except msgspec.DecodeError as error:
        raise BadRequest(f"The report cannot be read: {error}.") from error
    await parts.usage.add(report, int(time.time() * 1000))
    return {"counted": True}


@internal.get("/livez")
async def livez() -> dict[str, str]:
    return {"status": "ok"}
