"""OpenMetrics of the whole platform: control's own, each router's and each replica's, merged when scraped.

A process that does not answer in time is left out of this scrape; nothing waits for it twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import APIRouter, Response

from steelyard.control.api.endpoints import PREFIX
from steelyard.control.api.parts import EndpointName, Given, Parts, errors
from steelyard.control.probes import client_of
from steelyard.observe.logs import get_logger
from steelyard.observe.metrics import CONTENT_TYPE, merge

SCRAPE_TIMEOUT_S = 1.0
metrics = APIRouter(tags=["metrics"])
_OPENMETRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}
}
Source = tuple[dict[str, str], str]


@metrics.get("/metrics", response_class=Response, responses={**_OPENMETRICS, **errors()})
async def platform_metrics(parts: Given) -> Response:
    """Metrics of all processes, with labels that say whose they are."""
    texts = await _scrape(_routers(parts) + _replicas(parts, None))
    own = ({"process": "control"}, parts.instruments.render())
    return _reply(await asyncio.to_thread(_merged, [own, *texts]))


@metrics.get(PREFIX + "/{name}/metrics", response_class=Response, responses={**_OPENMETRICS, **errors(404)})
async def endpoint_metrics(name: EndpointName, parts: Given) -> Response:
    """Metrics of one endpoint, as its routers and replicas see it."""
    endpoint = await parts.operations.endpoint(name)
    texts = await _scrape(_routers(parts) + _replicas(parts, endpoint.id))
    text = await asyncio.to_thread(_merged, texts)
    return _reply(_only(text, f'endpoint="{endpoint.name}"'))


def _routers(parts: Parts) -> list[Source]:
    return [({"router": str(index)}, parts.settings.router_address(index)) for index in range(parts.settings.routers)]


def _replicas(parts: Parts, endpoint_id: str | None) -> list[Source]:
    return [
        ({"endpoint": spec.endpoint, "served_entity": spec.served_entity, "replica": spec.id}, spec.address)
        for spec in parts.operations.running()
        if endpoint_id in (None, spec.endpoint_id)
    ]


async def _scrape(sources: list[Source]) -> list[tuple[dict[str, str], bytes]]:
    texts = await asyncio.gather(*(_fetch(address) for _, address in sources))
    return [(labels, text) for (labels, _), text in zip(sources, texts, strict=True) if text is not None]


async def _fetch(address: str) -> bytes | None:
    try:
        async with client_of(address, SCRAPE_TIMEOUT_S) as client:
            reply = await client.get("/metrics")
    except (httpx.HTTPError, OSError):
        return None
    return reply.content if reply.status_code == 200 else None


def _merged(texts: list[tuple[dict[str, str], bytes]]) -> bytes:
    """All that can be read; a process whose text is broken costs only its own."""
    try:
        return merge(texts)
    except ValueError:
        return merge([part for part in texts if _is_readable(part)])


def _is_readable(part: tuple[dict[str, str], bytes]) -> bool:
    try:
        merge([part])
    except ValueError:
        get_logger().warning("metrics_unreadable", **part[0])
        return False
    return True


def _only(text: bytes, label: str) -> bytes:
    """The samples that bear `label`, each family under its description."""
    kept: list[str] = []
    described: list[str] = []
    for line in text.decode().splitlines():
        if line.startswith("# HELP"):
            described = [line]
        elif line.startswith("# "):
            described.append(line)
        elif label in line.partition("{")[2].partition("}")[0].split(","):
            kept += [*described, line]
            described = []
    return "\n".join([*kept, "# EOF", ""]).encode()


def _reply(text: bytes) -> Response:
    return Response(text, headers={"content-type": CONTENT_TYPE})
