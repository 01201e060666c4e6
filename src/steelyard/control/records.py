"""What the store hands out and takes in: plain immutable values, no database in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from steelyard.contracts.snapshot import RateLimitView
from steelyard.control.definitions import ConfigDefinition


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    version: int
    creator: str
    created_ms: int
    definition: ConfigDefinition


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """One endpoint as desired. `failed` is the configuration of the last update if that failed."""

    id: str
    name: str
    creator: str
    created_ms: int
    updated_ms: int
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    active: ConfigRecord | None = None
    pending: ConfigRecord | None = None
    failed: ConfigRecord | None = None
    failure_message: str | None = None
    stopped: bool = False
    rate_limits: tuple[RateLimitView, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an endpoint, for its users."""

    endpoint_id: str
    time_ms: int
    kind: str
    message: str
    served_entity: str | None = None
    replica: str | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    id: str
    sha256: str
    principal: str
    comment: str
    created_ms: int
    expires_ms: int | None = None
    groups: tuple[str, ...] = ()

    def valid_at(self, now_ms: int) -> bool:
        return self.expires_ms is None or now_ms < self.expires_ms
