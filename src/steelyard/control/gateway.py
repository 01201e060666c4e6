"""What a user asks an endpoint's gateway to limit, checked: from the API's bodies to what the store keeps.

Shaped as the official `ai_gateway.rate_limits`. Pure. Every fault is an `InvalidParameter` that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from steelyard.contracts.snapshot import RateLimitView
from steelyard.errors import InvalidParameter

LIMITS_LIMIT = 100
AMOUNTS = ("calls", "tokens", "input_tokens", "output_tokens", "model_units")
KEYS = ("endpoint", "user", "user_group", "service_principal")
_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,128}")
_NAMED = ("user_group", "service_principal")
_ALWAYS_ON = "usage_tracking_config"
_UNSUPPORTED = ("guardrails", "inference_table_config", "fallback_config")


def check_gateway(given: Mapping[str, Any], field: str = "") -> list[RateLimitView]:
    """`given`: an `ai_gateway` object. What we cannot do is refused rather than ignored: it may be a safeguard."""
    prefix = f"{field}." if field else ""
    for name in _UNSUPPORTED:
        if _asks_for(given.get(name)):
            raise InvalidParameter(f"{prefix}{name} is not supported.", param=f"{prefix}{name}")
    tracking = given.get(_ALWAYS_ON)
    if isinstance(tracking, Mapping) and tracking.get("enabled") is False:
        raise InvalidParameter(f"{prefix}{_ALWAYS_ON} is always on and cannot be disabled.", param=prefix + _ALWAYS_ON)
    return check_rate_limits(given.get("rate_limits") or [], f"{prefix}rate_limits")


def check_rate_limits(given: Sequence[Mapping[str, Any]], field: str) -> list[RateLimitView]:
    if len(given) > LIMITS_LIMIT:
        raise InvalidParameter(f"{field} may hold at most {LIMITS_LIMIT} limits.", param=field)
    checked: list[RateLimitView] = []
    seen: set[tuple[str, str | None, str]] = set()
    for number, item in enumerate(given):
        limit = _limit(item, f"{field}[{number}]")
        for name in AMOUNTS:
            if getattr(limit, name) is None:
                continue
            same = (limit.key, limit.principal, name)
            if same in seen:
                raise InvalidParameter(
                    f"{field}[{number}] limits {name} of the same {limit.key} again.", param=f"{field}[{number}]"
                )
            seen.add(same)
        checked.append(limit)
    return checked


def check_principal(name: str, field: str) -> str:
    """The name of a user or a group, which goes into headers, metrics and tables as it is."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter(f"{field} must be 1 to 128 letters, digits or any of ._@+-.", param=field)
    return name


def _limit(item: Mapping[str, Any], field: str) -> RateLimitView:
    key = item.get("key") or "endpoint"
    principal = item.get("principal") or None
    if key not in KEYS:
        raise InvalidParameter(f"{field}.key must be one of {', '.join(KEYS)}.", param=f"{field}.key")
    if item.get("renewal_period", "minute") != "minute":
        raise InvalidParameter(f"{field}.renewal_period must be 'minute'.", param=f"{field}.renewal_period")
    if key == "endpoint" and principal is not None:
        raise InvalidParameter(
            f"{field}.principal cannot be given for the whole endpoint; set key to user or user_group.",
            param=f"{field}.principal",
        )
    if key in _NAMED and principal is None:
        raise InvalidParameter(f"{field}.principal must name the {key}.", param=f"{field}.principal")
    if principal is not None:
        check_principal(principal, f"{field}.principal")
    amounts = {name: item[name] for name in AMOUNTS if item.get(name) is not None}
    if not amounts:
        raise InvalidParameter(f"{field} limits nothing; give one of {', '.join(AMOUNTS)}.", param=field)
    for name, amount in amounts.items():
        if amount < 1:
            raise InvalidParameter(f"{field}.{name} must be at least 1.", param=f"{field}.{name}")
    return msgspec.convert({"key": key, "principal": principal, **amounts}, RateLimitView)


def _asks_for(config: object) -> bool:
    """Something in it is on: clients send whole objects in which everything is off."""
    if isinstance(config, Mapping):
        return any(_asks_for(value) for value in config.values())
    if isinstance(config, list):
        return bool(config)
    return bool(config) and config != "NONE"
