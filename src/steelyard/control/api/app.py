"""Assembles the API and turns every error into a reply of one shape, in one place.

Called by control's entry point and by tests. An unexpected error is logged with its request id and told as a plain 500.
"""

from __future__ import annotations

import uuid
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from steelyard.control.api.calibrations import calibrations
from steelyard.control.api.endpoints import endpoints
from steelyard.control.api.internal import internal
from steelyard.control.api.logs import logs
from steelyard.control.api.metrics import metrics
from steelyard.control.api.parts import Parts
from steelyard.control.api.tokens import tokens
from steelyard.control.api.usage import usage
from steelyard.errors import (
    BadRequest,
    InternalError,
    InvalidParameter,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    SteelyardError,
    UnsupportedMediaType,
)
from steelyard.observe.logs import get_logger


def build_app(parts: Parts) -> FastAPI:
    app = FastAPI(
        title="Steelyard",
        summary="Endpoints that serve models: create, watch, update and delete them.",
        redirect_slashes=False,  # a redirect would name control's socket, which clients cannot reach
        strict_content_type=False,
    )
    app.state.parts = parts
    for routes in (endpoints, calibrations, logs, metrics, usage, tokens, internal):
        app.include_router(routes)
    app.add_exception_handler(SteelyardError, _known_error)
    app.add_exception_handler(RequestValidationError, _invalid_body)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    return app


def reply_of(error: SteelyardError) -> Response:
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    return Response(error.body(), status_code=error.status, headers=headers)


async def _known_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, SteelyardError)
    return reply_of(error)


async def _invalid_body(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return reply_of(_first_fault(error))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            return reply_of(NotFound("There is nothing at this path."))
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            return reply_of(MethodNotAllowed("This path does not take this method.", allow=allowed))
        case 415:
            return reply_of(UnsupportedMediaType("The body must be JSON."))
        case 413:
            return reply_of(PayloadTooLarge("The body is too large."))
        case _:
            return reply_of(BadRequest("The body cannot be read."))


async def _unexpected_error(request: Request, error: Exception) -> Response:
    request_id = request.headers.get("x-request-id") or uuid.uuid4().hex
    get_logger().error("request_failed", request_id=request_id, path=request.url.path, exc_info=error)
    reply = reply_of(InternalError(f"Something went wrong inside; the log tells more under request {request_id}."))
    reply.headers["x-request-id"] = request_id
    return reply


def _first_fault(error: RequestValidationError) -> SteelyardError:
    """One sentence about the first fault, naming the field by its path in the body."""
    fault: dict[str, Any] = error.errors()[0]
    if fault["type"] == "json_invalid":
        return BadRequest(f"The body is not JSON: {fault.get('ctx', {}).get('error', 'it cannot be read')}.")
    place = list(fault["loc"])
    in_body = bool(place) and place[0] == "body"
    field = ""
    for part in place[1:] if place and place[0] in {"body", "query", "path", "header"} else place:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else str(part)
    if not field:
        return InvalidParameter(
            "The body must be a JSON object." if in_body else f"The request is wrong: {fault['msg']}."
        )
    if fault["type"] == "missing":
        return InvalidParameter(f"{field} is missing.", param=field)
    told = str(fault["msg"]).removeprefix("Value error, ")
    return InvalidParameter(f"{field} is not valid: {told[:1].lower()}{told[1:]}.", param=field)


def _schema(app: FastAPI) -> dict[str, Any]:
    """FastAPI documents its own 422 for each body; ours is the 400 that each such route documents."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=version("steelyard"), summary=app.summary, routes=app.routes)
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema
