"""Routes of the serving-endpoints API: thin, in the shapes of `bodies.py`; `operations` does the work."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from steelyard.control.api.bodies import (
    ChangeTags,
    ConfigInput,
    CreateEndpoint,
    EndpointList,
    EndpointOutput,
    EventList,
    EventOutput,
    GatewayInput,
    GatewayOutput,
    Nothing,
    TagList,
)
from steelyard.control.api.parts import EndpointName, Given, Parts, Principal, errors
from steelyard.control.api.views import endpoint_view, gateway_view, tags_view
from steelyard.control.records import EndpointRecord

PREFIX = "/api/2.0/serving-endpoints"
endpoints = APIRouter(tags=["serving endpoints"])
_SHOWN: dict[str, Any] = {"response_model_exclude_none": True}


def _shown(endpoint: EndpointRecord, parts: Parts) -> EndpointOutput:
    return endpoint_view(endpoint, parts.operations.board(endpoint), parts.operations.serving(), parts.settings.url)


@endpoints.post(PREFIX, responses=errors(400), **_SHOWN)
@endpoints.post(f"{PREFIX}/", include_in_schema=False, **_SHOWN)
async def create(body: CreateEndpoint, parts: Given, principal: Principal) -> EndpointOutput:
    """Create an endpoint; poll it until `state.config_update` is NOT_UPDATING or UPDATE_FAILED."""
    endpoint = await parts.operations.create(
        body.name,
        body.config.model_dump(exclude_none=True),
        tags={tag.key: tag.value or "" for tag in body.tags or []},
        description=body.description or "",
        gateway=body.ai_gateway.model_dump(exclude_none=True) if body.ai_gateway else {},
        principal=principal,
    )
    return _shown(endpoint, parts)


@endpoints.get(PREFIX, responses=errors(), **_SHOWN)
@endpoints.get(f"{PREFIX}/", include_in_schema=False, **_SHOWN)
async def list_all(parts: Given) -> EndpointList:
    """All endpoints, by name."""
    return EndpointList(endpoints=[_shown(endpoint, parts) for endpoint in await parts.operations.endpoints()])


@endpoints.get(PREFIX + "/{name}", responses=errors(404), **_SHOWN)
async def get(name: EndpointName, parts: Given) -> EndpointOutput:
    """One endpoint with its configurations and states."""
    return _shown(await parts.operations.endpoint(name), parts)


@endpoints.delete(PREFIX + "/{name}", responses=errors(404))
async def delete(name: EndpointName, parts: Given, principal: Principal) -> Nothing:
    """Delete an endpoint; its replicas finish what they do and stop."""
    await parts.operations.delete(name, principal=principal)
    return Nothing()


@endpoints.put(PREFIX + "/{name}/config", responses=errors(400, 404, 409), **_SHOWN)
async def update_config(name: EndpointName, body: ConfigInput, parts: Given, principal: Principal) -> EndpointOutput:
    """Deploy another configuration; the present one serves until all of the new one is ready."""
    endpoint = await parts.operations.update(name, body.model_dump(exclude_none=True), principal=principal)
    return _shown(endpoint, parts)


@endpoints.put(PREFIX + "/{name}/ai-gateway", responses=errors(400, 404), **_SHOWN)
async def set_gateway(name: EndpointName, body: GatewayInput, parts: Given, principal: Principal) -> GatewayOutput:
    """Set the endpoint's rate limits, in the place of those that it had; they hold as soon as routers have them."""
    given = body.model_dump(exclude_none=True)
    return gateway_view(await parts.operations.set_gateway(name, given, principal=principal))


@endpoints.get(PREFIX + "/{name}/ai-gateway", responses=errors(404), **_SHOWN)
async def get_gateway(name: EndpointName, parts: Given) -> GatewayOutput:
    """The endpoint's rate limits."""
    return gateway_view(await parts.operations.endpoint(name))


@endpoints.patch(PREFIX + "/{name}/tags", responses=errors(400, 404))
async def change_tags(name: EndpointName, body: ChangeTags, parts: Given) -> TagList:
    """Add and remove tags; returns all that are left."""
    add = {tag.key: tag.value or "" for tag in body.add_tags or []}
    return TagList(tags=tags_view(await parts.operations.change_tags(name, add, body.delete_tags or [])))


@endpoints.put(PREFIX + "/{name}/config/stop", responses=errors(400, 404, 409), **_SHOWN)
@endpoints.post(PREFIX + "/{name}/config/stop", include_in_schema=False, **_SHOWN)
@endpoints.post(PREFIX + "/{name}/stop", include_in_schema=False, **_SHOWN)
async def stop(name: EndpointName, parts: Given, principal: Principal) -> EndpointOutput:
    """Stop all replicas and keep the configuration."""
    return _shown(await parts.operations.stop(name, principal=principal), parts)


@endpoints.put(PREFIX + "/{name}/config/start", responses=errors(400, 404, 409), **_SHOWN)
@endpoints.post(PREFIX + "/{name}/config/start", include_in_schema=False, **_SHOWN)
@endpoints.post(PREFIX + "/{name}/start", include_in_schema=False, **_SHOWN)
async def start(name: EndpointName, parts: Given, principal: Principal) -> EndpointOutput:
    """Start a stopped endpoint, as a new version of its configuration."""
    return _shown(await parts.operations.start(name, principal=principal), parts)


@endpoints.get(PREFIX + "/{name}/events", responses=errors(404), response_model_exclude_none=True)
async def events(name: EndpointName, parts: Given) -> EventList:
    """What happened to the endpoint, oldest first; the newest thousand are kept."""
    return EventList(
        events=[
            EventOutput(
                timestamp=event.time_ms,
                kind=event.kind,
                message=event.message,
                served_entity=event.served_entity,
                replica=event.replica,
            )
            for event in await parts.operations.events_of(name)
        ]
    )
