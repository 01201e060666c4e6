"""From the store's records and the loop's boards to reply bodies. Pure; used by the routes in `endpoints.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from steelyard.control.api.bodies import (
    ConfigOutput,
    EndpointOutput,
    EndpointStateOutput,
    EntityState,
    GatewayOutput,
    PendingConfigOutput,
    RateLimitOutput,
    RouteOutput,
    ServedEntityOutput,
    ServedModelOutput,
    TagOutput,
    TrafficOutput,
)
from steelyard.control.board import Board
from steelyard.control.definitions import EntityDefinition
from steelyard.control.records import ConfigRecord, EndpointRecord
from steelyard.control.snapshots import Serving, key_of
from steelyard.control.states import Deployment, EntityStatus

_STARTING = EntityStatus(Deployment.CREATING, "Starting.", 0, 1)
_RECOVERING = EntityStatus(Deployment.RECOVERING, "Starting.", 0, 1)
_STOPPED = EntityStatus(Deployment.RECOVERING, "The endpoint is stopped.", 0, 0)


def endpoint_view(
    endpoint: EndpointRecord, board: Board, serving: Mapping[str, Serving], platform_url: str
) -> EndpointOutput:
    active = {} if endpoint.active is None else _active_statuses(endpoint, endpoint.active, board)
    ready = bool(active) and all(status.deployment is Deployment.READY for status in active.values())
    return EndpointOutput(
        id=endpoint.id,
        name=endpoint.name,
        creator=endpoint.creator,
        creation_timestamp=endpoint.created_ms,
        last_updated_timestamp=endpoint.updated_ms,
        state=EndpointStateOutput(ready="READY" if ready else "NOT_READY", config_update=_update_state(endpoint)),
        config=_config(endpoint, endpoint.active, active, serving),
        pending_config=_pending(endpoint, board, serving),
        stopped=endpoint.stopped,
        task=_task(endpoint, serving),
        ai_gateway=gateway_view(endpoint) if endpoint.rate_limits else None,
        tags=tags_view(endpoint.tags),
        description=endpoint.description,
        endpoint_url=f"{platform_url}/serving-endpoints/{endpoint.name}/invocations",
    )


def tags_view(tags: Mapping[str, str]) -> list[TagOutput]:
    return [TagOutput(key=key, value=value) for key, value in tags.items()]


def gateway_view(endpoint: EndpointRecord) -> GatewayOutput:
    return GatewayOutput(
        rate_limits=[
            RateLimitOutput(
                key=limit.key,
                principal=limit.principal,
                calls=limit.calls,
                tokens=limit.tokens,
                input_tokens=limit.input_tokens,
                output_tokens=limit.output_tokens,
                model_units=limit.model_units,
            )
            for limit in endpoint.rate_limits
        ]
    )


def _update_state(endpoint: EndpointRecord) -> Literal["IN_PROGRESS", "UPDATE_FAILED", "NOT_UPDATING"]:
    if endpoint.pending is not None:
        return "IN_PROGRESS"
    return "UPDATE_FAILED" if endpoint.failed is not None else "NOT_UPDATING"


def _active_statuses(endpoint: EndpointRecord, config: ConfigRecord, board: Board) -> dict[str, EntityStatus]:
    missing = _STOPPED if endpoint.stopped else _RECOVERING
    known = {} if endpoint.stopped else board.of(config)
    return {entity.name: known.get(entity.name, missing) for entity in config.definition.entities}


def _pending(endpoint: EndpointRecord, board: Board, serving: Mapping[str, Serving]) -> PendingConfigOutput | None:
    if endpoint.pending is not None:
        record = endpoint.pending
        statuses = {entity.name: board.of(record).get(entity.name, _STARTING) for entity in record.definition.entities}
    elif endpoint.failed is not None:
        record = endpoint.failed
        statuses = _failed_statuses(record, endpoint.failure_message or "It failed.")
    else:
        return None
    config = _config(endpoint, record, statuses, serving)
    return PendingConfigOutput(**dict(config), start_time=record.created_ms)


def _failed_statuses(record: ConfigRecord, message: str) -> dict[str, EntityStatus]:
    """The message begins with the name of the entity that failed; the others were given up with it."""
    culprit, _, reason = message.partition(": ")
    names = [entity.name for entity in record.definition.entities]
    if culprit not in names:
        return {name: EntityStatus(Deployment.FAILED, message) for name in names}
    aborted = EntityStatus(Deployment.ABORTED, f"Given up because {culprit} failed.")
    return {name: EntityStatus(Deployment.FAILED, reason) if name == culprit else aborted for name in names}


def _config(
    endpoint: EndpointRecord,
    record: ConfigRecord | None,
    statuses: Mapping[str, EntityStatus],
    serving: Mapping[str, Serving],
) -> ConfigOutput:
    if record is None:
        return ConfigOutput()
    routes = [
        RouteOutput(
            served_entity_name=route.served_entity_name,
            served_model_name=route.served_entity_name,
            traffic_percentage=route.traffic_percentage,
        )
        for route in record.definition.routes
    ]
    entities = record.definition.entities
    return ConfigOutput(
        served_entities=[
            _entity(item, record, statuses[item.name], serving.get(key_of(endpoint, item))) for item in entities
        ],
        served_models=[_model(item, record, statuses[item.name]) for item in entities],
        traffic_config=TrafficOutput(routes=routes),
        config_version=record.version,
    )


def _entity(
    entity: EntityDefinition, record: ConfigRecord, status: EntityStatus, serving: Serving | None
) -> ServedEntityOutput:
    return ServedEntityOutput(
        entity_name=entity.entity_name,
        entity_version=entity.entity_version,
        runtime=serving.runtime if serving else None,
        ready_replicas=status.ready,
        replicas=status.wanted,
        **_common(entity, record, status),
    )


def _model(entity: EntityDefinition, record: ConfigRecord, status: EntityStatus) -> ServedModelOutput:
    return ServedModelOutput(
        model_name=entity.entity_name, model_version=entity.entity_version, **_common(entity, record, status)
    )


def _common(entity: EntityDefinition, record: ConfigRecord, status: EntityStatus) -> dict[str, Any]:
    state = EntityState(deployment=f"DEPLOYMENT_{status.deployment.value}", deployment_state_message=status.message)
    return {
        "name": entity.name,
        "workload_size": entity.workload_size,
        "workload_type": entity.workload_type,
        "scale_to_zero_enabled": entity.scale_to_zero_enabled,
        "min_provisioned_concurrency": entity.min_provisioned_concurrency,
        "max_provisioned_concurrency": entity.max_provisioned_concurrency,
        "environment_vars": entity.environment_vars or None,
        "creator": record.creator,
        "creation_timestamp": record.created_ms,
        "state": state,
    }


def _task(endpoint: EndpointRecord, serving: Mapping[str, Serving]) -> str | None:
    config = endpoint.active or endpoint.pending
    for entity in config.definition.entities if config else ():
        found = serving.get(key_of(endpoint, entity))
        if found is not None and found.task is not None:
            return found.task
    return None
