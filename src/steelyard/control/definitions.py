"""What a user asks an endpoint to be: served entities and traffic, checked and made complete.

The API builds these from request bodies, the store keeps them as JSON, the plan works towards them. Pure: whether
a path exists is passed in. Every fault is an `InvalidParameter` that names the field.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from steelyard.errors import InvalidParameter

NAME_LIMIT = 63
ENTITIES_LIMIT = 10
VARIABLES_LIMIT = 30
WORKLOAD_CONCURRENCY = {"Small": 4, "Medium": 8, "Large": 16}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")


class EntityDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One served entity as the user gave it, with a name and the URI from which its replicas load the model."""

    name: str
    entity_name: str
    entity_version: str | None = None
    model_uri: str
    environment_vars: dict[str, str] = {}
    workload_size: str | None = None
    workload_type: str | None = None
    scale_to_zero_enabled: bool = False
    min_provisioned_concurrency: int | None = None
    max_provisioned_concurrency: int | None = None

    @property
    def wanted_concurrency(self) -> int:
        """Requests that the entity must be able to hold at once, at least, while it is not scaled to zero."""
        if self.scale_to_zero_enabled:
            return 1
        if self.workload_size is not None:
            return WORKLOAD_CONCURRENCY[self.workload_size]
        return max(1, self.min_provisioned_concurrency or 1)

    @property
    def most_concurrency(self) -> int:
        """Requests at once for which it may have room, where that takes more than one replica."""
        if self.workload_size is not None:
            return WORKLOAD_CONCURRENCY[self.workload_size]
        return max(self.wanted_concurrency, self.max_provisioned_concurrency or self.min_provisioned_concurrency or 1)

    @property
    def follows_load(self) -> bool:
        """Whether the number of replicas may change with the load."""
        return self.scale_to_zero_enabled or self.most_concurrency > self.wanted_concurrency


class RouteDefinition(msgspec.Struct, frozen=True, kw_only=True):
    served_entity_name: str
    traffic_percentage: int


class ConfigDefinition(msgspec.Struct, frozen=True, kw_only=True):
    entities: list[EntityDefinition]
    routes: list[RouteDefinition]


def entity_key(endpoint_id: str, name: str, model_uri: str, version: str | None, variables: Mapping[str, str]) -> str:
    """Names what a replica runs: two definitions with one key can share replicas, so sizes are left out."""
    parts = [endpoint_id, name, model_uri, version, sorted(variables.items())]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def check_name(name: str, field: str = "name") -> str:
    if not _NAME.fullmatch(name):
        raise InvalidParameter(
            f"{field} must be 1 to {NAME_LIMIT} letters, digits, '-' or '_', which {_quoted(name)} is not.", param=field
        )
    return name


def build_entity(given: Mapping[str, Any], field: str, resolve_path: Callable[[str], str | None]) -> EntityDefinition:
    """Checks one `served_entities` item. `resolve_path` returns the absolute form of a path that exists, else None.

    Raises InvalidParameter.
    """
    for unsupported in ("external_model", "foundation_model"):
        if given.get(unsupported) is not None:
            raise InvalidParameter(
                f"{field}.{unsupported} is not supported: name a model with entity_name.",
                param=f"{field}.{unsupported}",
            )
    entity_name = given.get("entity_name") or ""
    version = given.get("entity_version") or None
    if not entity_name.strip():
        raise InvalidParameter(f"{field}.entity_name must name a model.", param=f"{field}.entity_name")
    _check_size(given, field)
    return EntityDefinition(
        name=check_name(given.get("name") or _default_name(entity_name, version), f"{field}.name"),
        entity_name=entity_name,
        entity_version=version,
        model_uri=_model_uri(entity_name, version, field, resolve_path),
        environment_vars=_checked_variables(given.get("environment_vars") or {}, f"{field}.environment_vars"),
        workload_size=given.get("workload_size"),
        workload_type=given.get("workload_type"),
        scale_to_zero_enabled=bool(given.get("scale_to_zero_enabled")),
        min_provisioned_concurrency=given.get("min_provisioned_concurrency"),
        max_provisioned_concurrency=given.get("max_provisioned_concurrency"),
    )


def build_config(
    entities: Sequence[EntityDefinition], routes: Sequence[RouteDefinition] | None, field: str
) -> ConfigDefinition:
    """Checks the entities against each other and the traffic against them. `routes` None: a lone entity gets all."""
    prefix = f"{field}." if field else ""
    if not entities:
        raise InvalidParameter(
            f"{prefix}served_entities must hold at least one entity.", param=f"{prefix}served_entities"
        )
    if len(entities) > ENTITIES_LIMIT:
        raise InvalidParameter(
            f"{prefix}served_entities may hold at most {ENTITIES_LIMIT} entities.", param=f"{prefix}served_entities"
        )
    names = [entity.name for entity in entities]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidParameter(
            f"{prefix}served_entities holds two entities named {twice!r}.", param=f"{prefix}served_entities"
        )
    routes_field = f"{prefix}traffic_config.routes"
    if routes is None:
        if len(entities) > 1:
            raise InvalidParameter(
                f"{routes_field} must say how traffic is split between entities.", param=routes_field
            )
        routes = [RouteDefinition(served_entity_name=names[0], traffic_percentage=100)]
    routed: set[str] = set()
    for route in routes:
        if route.served_entity_name not in names:
            raise InvalidParameter(
                f"{routes_field} names {_quoted(route.served_entity_name)}, which is not among the served entities.",
                param=routes_field,
            )
        if route.served_entity_name in routed:
            raise InvalidParameter(f"{routes_field} names {route.served_entity_name!r} twice.", param=routes_field)
        routed.add(route.served_entity_name)
    total = sum(route.traffic_percentage for route in routes)
    if total != 100:
        raise InvalidParameter(f"{routes_field} must sum to 100 percent, not {total}.", param=routes_field)
    return ConfigDefinition(entities=list(entities), routes=list(routes))


def _model_uri(name: str, version: str | None, field: str, resolve_path: Callable[[str], str | None]) -> str:
    if name.startswith("models:/"):
        tail = name.removeprefix("models:/")
        return f"{name}/{version}" if version and "/" not in tail and "@" not in tail else name
    if "://" in name or name.startswith("runs:/"):
        return name
    path = resolve_path(name)
    if path is not None:
        return path
    if "/" in name or name.endswith(".gguf"):
        return name
    if version is None:
        raise InvalidParameter(
            f"{field}.entity_version is needed: {_quoted(name)} is no existing path, so it names a registered model.",
            param=f"{field}.entity_version",
        )
    return f"models:/{name}/{version}"


def _default_name(entity_name: str, version: str | None) -> str:
    """`iris` version 3 → `iris-3`; a path or URI gives its last part."""
    stem = entity_name
    if entity_name.startswith("models:/"):
        stem = entity_name.removeprefix("models:/")
    elif "/" in entity_name:
        stem = entity_name.rstrip("/").rpartition("/")[2]
    stem = stem.removesuffix(".gguf")
    if version is not None:
        stem = f"{stem}-{version}"
    return _FOREIGN.sub("-", stem).strip("-")[:NAME_LIMIT] or "model"


def _check_size(given: Mapping[str, Any], field: str) -> None:
    size = given.get("workload_size")
    low, high = given.get("min_provisioned_concurrency"), given.get("max_provisioned_concurrency")
    if size is not None and size not in WORKLOAD_CONCURRENCY:
        known = ", ".join(WORKLOAD_CONCURRENCY)
        raise InvalidParameter(
            f"{field}.workload_size must be one of {known}, not {_quoted(size)}.", param=f"{field}.workload_size"
        )
    if size is not None and (low is not None or high is not None):
        raise InvalidParameter(
            f"{field} may have workload_size or min/max_provisioned_concurrency, not both.",
            param=f"{field}.workload_size",
        )
    if low is not None and high is not None and low > high:
        raise InvalidParameter(
            f"{field}.min_provisioned_concurrency ({low}) is above max_provisioned_concurrency ({high}).",
            param=f"{field}.min_provisioned_concurrency",
        )


def _checked_variables(variables: Mapping[str, str], field: str) -> dict[str, str]:
    if len(variables) > VARIABLES_LIMIT:
        raise InvalidParameter(f"{field} may hold at most {VARIABLES_LIMIT} variables.", param=field)
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise InvalidParameter(f"{field} holds {_quoted(name)}, which is not a variable name.", param=field)
        if name.startswith("STEELYARD_"):
            raise InvalidParameter(f"{field}.{name} is reserved for the platform.", param=field)
        if "{{secrets/" in value:
            raise InvalidParameter(f"{field}.{name} refers to a secret, which is not supported.", param=field)
    return dict(variables)


def _quoted(text: str) -> str:
    """A client's text inside a message, cut to a readable length."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
