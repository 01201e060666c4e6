"""From what the store holds to what planning and the substrate work with. Pure; used by the reconcile loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from steelyard.contracts.cost import CalibrationSpec
from steelyard.contracts.replica import ReplicaSpec
from steelyard.contracts.snapshot import ReplicaView
from steelyard.control.definitions import EntityDefinition
from steelyard.control.records import ConfigRecord, EndpointRecord
from steelyard.control.snapshots import key_of
from steelyard.control.states import Config, Desired, Entity, Start
from steelyard.settings import Settings

ReplicasOf = Callable[[EndpointRecord, EntityDefinition], int | None]


def as_configured(endpoint: EndpointRecord, entity: EntityDefinition) -> int | None:
    """No autoscaler has a say."""
    return None


def desired(endpoint: EndpointRecord | None, replicas_of: ReplicasOf = as_configured) -> Desired:
    """`endpoint` None: it is deleted. `replicas_of`: the autoscaler's answer, None where it has none."""
    if endpoint is None:
        return Desired()
    active, pending = (_config(endpoint, config, replicas_of) for config in (endpoint.active, endpoint.pending))
    return Desired(active, pending, endpoint.stopped)


def replica_spec(endpoint: EndpointRecord, action: Start, settings: Settings, suffix: str) -> ReplicaSpec:
    """What the new replica is told; `suffix` makes its id unique."""
    configs = [config for config in (endpoint.active, endpoint.pending) if config is not None]
    config = next(item for item in configs if item.version == action.version)
    entity = next(item for item in config.definition.entities if item.name == action.entity.name)
    replica_id = f"{endpoint.name[:20]}-{suffix}"
    return ReplicaSpec(
        id=replica_id,
        endpoint=endpoint.name,
        endpoint_id=endpoint.id,
        served_entity=entity.name,
        address=settings.replica_address(replica_id),
        model_uri=entity.model_uri,
        model_version=entity.entity_version,
        environment_vars=entity.environment_vars,
        drain_timeout_s=settings.drain_timeout_s,
    )


def calibration_spec(
    endpoint: EndpointRecord, entity: EntityDefinition, replica: ReplicaView, pid: int | None
) -> CalibrationSpec:
    """To find out what requests cost this replica, whose process is `pid` if that is on this machine."""
    variables = sorted(entity.environment_vars.items())
    return CalibrationSpec(
        endpoint=endpoint.name,
        served_entity=entity.name,
        address=replica.address,
        pid=pid,
        model_uri=entity.model_uri,
        model_version=entity.entity_version,
        setup=hashlib.sha256(msgspec.json.encode(variables)).hexdigest()[:16] if variables else "",
    )


def _config(endpoint: EndpointRecord, record: ConfigRecord | None, replicas_of: ReplicasOf) -> Config | None:
    if record is None:
        return None
    entities = tuple(
        Entity(key_of(endpoint, item), item.name, item.wanted_concurrency, replicas_of(endpoint, item))
        for item in record.definition.entities
    )
    return Config(record.version, entities)
