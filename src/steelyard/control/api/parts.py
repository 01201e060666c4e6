"""What all routes share: who asks, what they may use, and how errors are documented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request

from steelyard.control.api.bodies import ErrorOutput
from steelyard.control.calibrations import Calibrations
from steelyard.control.instruments import Instruments
from steelyard.control.operations import Operations
from steelyard.control.snapshots import Snapshots
from steelyard.control.usage import UsageTable
from steelyard.policy.lease_book import LeaseBook
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate

PRINCIPAL_HEADER = "x-steelyard-principal"
LOCAL_PRINCIPAL = "local"  # somebody on the socket itself, which only the platform's own user can open


@dataclass(frozen=True, slots=True)
class Parts:
    """What control hands to its API."""

    settings: Settings
    operations: Operations
    snapshots: Snapshots
    substrate: LocalSubstrate
    instruments: Instruments
    calibrations: Calibrations
    leases: LeaseBook
    usage: UsageTable


def _parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


def _principal(request: Request) -> str:
    return request.headers.get(PRINCIPAL_HEADER) or LOCAL_PRINCIPAL


Given = Annotated[Parts, Depends(_parts)]
Principal = Annotated[str, Depends(_principal)]
EndpointName = Annotated[str, Path(description="Name of the endpoint.")]

_DESCRIPTIONS = {
    400: "What was asked cannot be done; the message names the field or the state that forbids it.",
    404: "There is no such endpoint, entity or token.",
    409: "Another update of this endpoint is in progress.",
    503: "The store does not answer now.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Documents the error replies of a route; 503 is always among them."""
    return {status: {"model": ErrorOutput, "description": _DESCRIPTIONS[status]} for status in sorted({*statuses, 503})}
