"""What tenants used of an endpoint, by the hour or in total."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from steelyard.contracts.usage_report import HOUR_MS
from steelyard.control.api.bodies import UsageItem, UsageOutput
from steelyard.control.api.endpoints import PREFIX
from steelyard.control.api.parts import EndpointName, Given, errors
from steelyard.errors import InvalidParameter
from steelyard.policy.units import MMU_PER_MU

usage = APIRouter(tags=["usage"])
_DAY_MS = 24 * HOUR_MS
_LATEST_MS = 2**53  # what JSON readers take for whole
_SHOWN: dict[str, Any] = {"response_model_exclude_none": True}

_Time = Annotated[int | None, Query(ge=0, le=_LATEST_MS, description="In ms since the epoch.")]


@usage.get(PREFIX + "/{name}/usage", responses=errors(400, 404), **_SHOWN)
async def read(
    name: EndpointName,
    parts: Given,
    *,
    start_time: _Time = None,
    end_time: _Time = None,
    by: Annotated[Literal["hour", "total"], Query(description="One item per hour, or one for all.")] = "hour",
    principal: Annotated[str | None, Query(description="Only this one's.")] = None,
) -> UsageOutput:
    """Requests, rows, tokens and model units by served entity and principal, of the last 24 hours if not told else.

    Counted by whole hours: the first is the one that `start_time` falls in.
    """
    now_ms = int(time.time() * 1000)
    end_ms = now_ms if end_time is None else end_time
    begin_ms = max(0, end_ms - _DAY_MS) if start_time is None else start_time
    if begin_ms > end_ms:
        raise InvalidParameter("start_time must not lie behind end_time.", param="start_time")
    begin_ms -= begin_ms % HOUR_MS
    found = await parts.usage.read(name, begin_ms, end_ms, by, principal)
    if not found:
        await parts.operations.endpoint(name)  # a deleted one's usage is still told
    return UsageOutput(
        endpoint_name=name,
        start_time=begin_ms,
        end_time=end_ms,
        usage=[
            UsageItem(
                start_time=record.hour_ms,
                served_entity_name=record.served_entity,
                principal=record.principal,
                requests=record.requests,
                rows=record.rows,
                input_tokens=record.input_tokens,
                cached_tokens=record.cached_tokens,
                output_tokens=record.output_tokens,
                image_tokens=record.image_tokens,
                model_units=record.mmu / MMU_PER_MU,
            )
            for record in found
        ],
    )
