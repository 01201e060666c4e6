"""The routing snapshot: all that a router must know, pushed by control, versioned, kept on disk by the router.

Control answers `GET /internal/snapshot?after=<version>&router=<index>&wait_s=<s>` on its Unix socket: at once when
its version differs from `after`, else when it changes or `wait_s` is over. The `after` of a router's poll is also
its acknowledgement that it has applied that version: control stops a replica only when every router has applied a
snapshot without it.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One ready replica. Draining and starting ones are not in the snapshot."""

    id: str
    address: str  # "unix:/path" or "tcp:host:port"
    max_concurrency: int  # requests that it may hold at once


class CostView(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of a model cost: MU per unit of each term, named as in `policy/units.py`."""

    coefficients: dict[str, float]
    uncertainty: float | None = None  # relative error of a typical prediction; None: unknown


class ServedEntityView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    traffic_percentage: int  # 0..100 within the endpoint
    task: str | None = None  # "llm/v1/chat" for chat models, None for MLflow-dialect models
    replicas: list[ReplicaView] = []
    recovering: bool = False  # replicas are on their way: hold requests; else no replica means 503
    cost: CostView | None = None  # None: it was not calibrated yet


class RateLimitView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an endpoint lets through per minute, as `policy/rate_limits.py` counts it; what is None has no limit."""

    key: Literal["endpoint", "user", "user_group", "service_principal"] = "endpoint"
    principal: str | None = None  # whose; None with key "user": each user who has no limit of their own
    calls: int | None = None
    tokens: int | None = None  # of input and output together
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_units: int | None = None


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    creation_timestamp: int  # ms since the epoch
    creator: str
    stopped: bool = False
    served_entities: list[ServedEntityView] = []
    rate_limits: list[RateLimitView] = []


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token by its SHA-256; a token is 256 random bits, so a fast hash is enough."""

    sha256: str  # hex
    principal: str
    groups: list[str] = []  # that its principal belongs to


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: int  # grows; also across restarts of control
    auth: bool = True
    tokens: list[TokenView] = []
    endpoints: list[EndpointView] = []
