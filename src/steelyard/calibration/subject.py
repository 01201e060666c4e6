"""What a replica that is to be loaded says of itself, and the requests that it can be sent.

`runner.py` and `verify.py` ask. Raises SteelyardError with one sentence when nothing can be asked of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from steelyard.calibration.lanes import HEADERS, counted_of
from steelyard.calibration.prompts import Prompts
from steelyard.calibration.rows import Rows, rows_of_example, rows_of_metadata
from steelyard.contracts.cost import CalibrationSpec
from steelyard.contracts.replica import LoadReport, ReplicaStatus
from steelyard.errors import InvalidState, ModelFailed, SteelyardError
from steelyard.packages.inspect import inspect_package
from steelyard.packages.resolve import resolve
from steelyard.policy.calibration_shapes import Limits
from steelyard.wire.client import Pool
from steelyard.wire.fetch import Response, fetch

_MOST_LANES = {True: 256, False: 64}  # by whether it generates: rows saturate a replica with few at once
_FEW_WORDS, _MANY_WORDS = 4, 96
_PROBE_TIMEOUT_S = 120.0
Document = TypeVar("Document", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Subject:
    """`bodies` makes the requests that it takes, within `limits`."""

    status: ReplicaStatus
    bodies: Prompts | Rows
    limits: Limits


async def get_to_know(pool: Pool, spec: CalibrationSpec) -> Subject:
    """Sends a model that generates three short prompts."""
    status = await _status(pool)
    if status.context_length is not None:
        bodies, limits = await _prompts(pool, spec, status)
        return Subject(status, bodies, limits)
    rows = await _rows(pool, spec)
    return Subject(status, rows, Limits(min(status.max_concurrency, _MOST_LANES[False]), max_rows=rows.max_rows))


async def load_of(pool: Pool) -> LoadReport:
    return _decoded(await fetch(pool, "GET", b"/load"), LoadReport)


async def _status(pool: Pool) -> ReplicaStatus:
    reply = await fetch(pool, "GET", b"/ready")
    status = _decoded(reply, ReplicaStatus)
    if status.state != "ready":
        raise InvalidState(f"The replica is not ready but {status.state}.")
    return status


def _decoded(reply: Response, kind: type[Document]) -> Document:
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.MsgspecError:
        raise ModelFailed("The replica does not say how it is; it may be of another version of Steelyard.") from None


async def _prompts(pool: Pool, spec: CalibrationSpec, status: ReplicaStatus) -> tuple[Prompts, Limits]:
    prompts = Prompts(status.task, spec.seed)
    cached, context = 0, status.context_length or 0
    probes = [_FEW_WORDS]
    while probes:
        words = probes.pop(0)
        body = prompts.probe(words)
        reply = await fetch(
            pool,
            "POST",
            prompts.path,
            headers=HEADERS,
            body=body,
            timeout_s=_PROBE_TIMEOUT_S,
        )
        counted = counted_of(reply.body)
        if reply.status != 200 or counted is None:
            raise ModelFailed(f"The model did not answer a short prompt: {_first_words(reply)}")
        prompts.learn(words, counted.prompt_tokens)
        cached = counted.cached_tokens
        if words == _FEW_WORDS:  # then as many as surely fit, twice: the second tells whether the head is kept
            most = max(_FEW_WORDS + 1, min(_MANY_WORDS, words * context // (2 * counted.prompt_tokens)))
            probes = [most, most]
    limits = Limits(
        max_concurrency=min(status.max_concurrency, _MOST_LANES[True]),
        max_context=context,
        caches=cached > 0,
    )
    return prompts, limits


async def _rows(pool: Pool, spec: CalibrationSpec) -> Rows:
    example = await asyncio.to_thread(_example, spec)
    rows = None if example is None else rows_of_example(example)
    if rows is None:
        rows = rows_of_metadata((await fetch(pool, "GET", b"/v2/model")).body)
    if rows is None:
        raise InvalidState("The model has neither an input example nor a signature, so there is nothing to ask it.")
    return rows


def _example(spec: CalibrationSpec) -> bytes | None:
    try:
        return inspect_package(resolve(spec.model_uri, spec.model_version)).example
    except SteelyardError:
        return None  # what serves need not be readable from here


def _first_words(reply: Response) -> str:
    return reply.body[:200].decode(errors="replace")
