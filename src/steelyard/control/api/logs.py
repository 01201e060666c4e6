"""Logs of a served entity's replicas, read from their folders: how they came up, and what they said last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter

from steelyard.control.api.bodies import LogsOutput
from steelyard.control.api.endpoints import PREFIX
from steelyard.control.api.parts import EndpointName, Given, Parts, errors
from steelyard.errors import NotFound
from steelyard.substrate import logfiles

LOG_BYTES = 256 * 1024  # of each replica
LOGS_AT_ONCE = 5
logs = APIRouter(tags=["logs"])


@logs.get(PREFIX + "/{name}/served-models/{served_model}/logs", responses=errors(404))
async def service_logs(name: EndpointName, served_model: str, parts: Given) -> LogsOutput:
    """The newest output of the entity's replicas, running or lately ended, the last started last."""
    return await _read(parts, name, served_model, logfiles.tail, LOGS_AT_ONCE)


@logs.get(PREFIX + "/{name}/served-models/{served_model}/build-logs", responses=errors(404))
async def build_logs(name: EndpointName, served_model: str, parts: Given) -> LogsOutput:
    """The first output of the entity's newest replica: its environment, its loading, its first prediction."""
    return await _read(parts, name, served_model, logfiles.head, 1)


async def _read(
    parts: Parts, name: str, served_model: str, read: Callable[[Path, int], bytes], count: int
) -> LogsOutput:
    endpoint = await parts.operations.endpoint(name)
    configs = [config for config in (endpoint.active, endpoint.pending, endpoint.failed) if config is not None]
    if not any(entity.name == served_model for config in configs for entity in config.definition.entities):
        raise NotFound(f"Endpoint {name!r} has no served entity of this name.")
    return LogsOutput(logs=await asyncio.to_thread(_collect, parts, endpoint.id, served_model, read, count))


def _collect(parts: Parts, endpoint_id: str, served_model: str, read: Callable[[Path, int], bytes], count: int) -> str:
    newest = parts.substrate.log_files(endpoint_id, served_model)[:count]
    texts = [(path.parent.name, read(path, LOG_BYTES).decode(errors="replace")) for path in reversed(newest)]
    if len(texts) == 1:
        return texts[0][1]
    return "\n".join(f"==> replica {replica_id} <==\n{text}" for replica_id, text in texts)
