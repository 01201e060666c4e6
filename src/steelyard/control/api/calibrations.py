"""Routes of calibrations: begin one against a ready replica, see how far the latest ones are, stop the running one."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter

from steelyard.contracts.cost import LatencyTarget
from steelyard.control.api.bodies import CalibrateInput, CalibrationList, CalibrationOutput, Nothing
from steelyard.control.api.endpoints import PREFIX
from steelyard.control.api.parts import EndpointName, Given, Parts, errors
from steelyard.control.calibrations import Job
from steelyard.control.wanted import calibration_spec

calibrations = APIRouter(tags=["calibrations"])
_PATH = PREFIX + "/{name}/calibrations"
_SHOWN: dict[str, Any] = {"response_model_exclude_none": True}


@calibrations.post(_PATH, responses=errors(400, 404, 409), **_SHOWN)
async def begin(name: EndpointName, body: CalibrateInput, parts: Given) -> CalibrationOutput:
    """Measure what requests cost, by loading one ready replica for seconds (rows) or minutes (language models)."""
    return _shown(await _begin(parts, name, body))


@calibrations.get(_PATH, responses=errors(404), **_SHOWN)
async def show(name: EndpointName, parts: Given) -> CalibrationList:
    """The latest calibration of each served entity."""
    endpoint = await parts.operations.endpoint(name)
    jobs = await parts.calibrations.of(endpoint.id)
    return CalibrationList(calibrations=[_shown(job) for job in jobs])


@calibrations.delete(_PATH, responses=errors(404))
async def stop(name: EndpointName, parts: Given) -> Nothing:
    """End the endpoint's running calibration, if there is one."""
    endpoint = await parts.operations.endpoint(name)
    parts.calibrations.stop(endpoint.id)
    return Nothing()


async def _begin(parts: Parts, name: str, body: CalibrateInput) -> Job:
    endpoint, entity, replica = await parts.operations.calibratable(name, body.served_entity_name)
    target = body.target
    spec = msgspec.structs.replace(
        calibration_spec(endpoint, entity, replica, parts.operations.pid_of(replica.id)),
        budget_s=body.budget_seconds,
        target=None
        if target is None
        else LatencyTarget(
            first_token_s=target.first_token_seconds,
            per_token_s=target.per_token_seconds,
            whole_s=target.whole_seconds,
        ),
    )
    await parts.calibrations.end_background()
    return parts.calibrations.begin(endpoint.id, spec)


def _shown(job: Job) -> CalibrationOutput:
    return CalibrationOutput(
        served_entity_name=job.served_entity,
        state=job.state,
        done=job.done,
        left=job.left,
        detail=job.detail,
        message=job.message,
        result=None if job.result is None else msgspec.to_builtins(job.result),
    )
