"""What the commands show of an endpoint, read from its JSON. Pure: values in, values and rich tables out.

Used by `endpoints`, `up` and `deploy`. Fields that an older or newer platform does not send show as a dash.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Json = dict[str, Any]
Outcome = Literal["working", "ready", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class EntityRow:
    """One served entity of an endpoint."""

    name: str
    model: str
    runtime: str
    replicas: str
    traffic: str
    state: str
    message: str


def state_of(endpoint: Json) -> tuple[str, str]:
    """(`ready`, `config_update`) as the API names them."""
    state = endpoint.get("state") or {}
    return str(state.get("ready", "NOT_READY")), str(state.get("config_update", "NOT_UPDATING"))


def outcome_of(endpoint: Json) -> Outcome:
    """Where a deployment stands: `failed` also when an older version still serves."""
    ready, update = state_of(endpoint)
    if endpoint.get("stopped"):
        return "stopped"
    if update == "IN_PROGRESS":
        return "working"
    if update != "NOT_UPDATING" or any(row.state == "FAILED" for row in entities_of(endpoint)):
        return "failed"
    return "ready" if ready == "READY" else "working"


def entities_of(endpoint: Json, which: Literal["config", "pending_config"] = "config") -> list[EntityRow]:
    """Rows of the active or the pending configuration."""
    config = endpoint.get(which) or {}
    routes = (config.get("traffic_config") or {}).get("routes") or []
    traffic = {
        str(route.get("served_entity_name") or route.get("served_model_name")): f"{route.get('traffic_percentage')} %"
        for route in routes
    }
    return [_entity(entity, traffic) for entity in config.get("served_entities") or []]


def failure_of(endpoint: Json) -> str:
    """Why the last update failed, in the platform's words."""
    for which in ("pending_config", "config"):
        for entity in (endpoint.get(which) or {}).get("served_entities") or []:
            state = entity.get("state") or {}
            if "FAILED" in str(state.get("deployment", "")):
                return str(state.get("deployment_state_message") or "it gave no reason")
    return str((endpoint.get("state") or {}).get("message") or "it gave no reason")


def doing_of(endpoint: Json) -> str:
    """What a deployment is doing now, for a progress display."""
    rows = entities_of(endpoint, "pending_config") or entities_of(endpoint)
    messages = [row.message for row in rows if row.message]
    if not messages and rows and all(row.state == "READY" for row in rows):
        return "ready, going live"  # routers take it up; only then is the update over
    doing = messages[0].splitlines()[0].rstrip(".:") if messages else "starting"
    return doing[:1].lower() + doing[1:]


def endpoints_table(endpoints: list[Json]) -> Table:
    """One row per served entity; the endpoint's own columns only on its first."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("NAME", "READY", "UPDATE", "ENTITY", "RUNTIME", "REPLICAS", "TRAFFIC"):
        table.add_column(column, no_wrap=column != "NAME", overflow="fold" if column == "NAME" else "ellipsis")
    for endpoint in endpoints:
        ready, update = state_of(endpoint)
        if endpoint.get("stopped"):
            update = "STOPPED"
        first = [str(endpoint.get("name")), _coloured(ready), _coloured(update)]
        for row in entities_of(endpoint) or entities_of(endpoint, "pending_config") or [_NOTHING]:
            table.add_row(*first, row.name, row.runtime, row.replicas, row.traffic)
            first = ["", "", ""]
    return table


def console() -> Console:
    """As wide as the terminal, or as wide as needed where there is none."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=1000, soft_wrap=True)


_NOTHING = EntityRow("–", "–", "–", "–", "–", "–", "")
_COLOURS = {"READY": "green", "NOT_READY": "yellow", "IN_PROGRESS": "cyan", "UPDATE_FAILED": "red", "STOPPED": "dim"}


def _coloured(word: str) -> str:
    colour = _COLOURS.get(word)
    return f"[{colour}]{word}[/]" if colour else word


def _entity(entity: Json, traffic: dict[str, str]) -> EntityRow:
    state = entity.get("state") or {}
    name = str(entity.get("name") or "–")
    version = entity.get("entity_version")
    model = str(entity.get("entity_name") or "–")
    ready, wanted = entity.get("ready_replicas"), entity.get("replicas")
    return EntityRow(
        name=name,
        model=f"{model} version {version}" if version else model,
        runtime=str(entity.get("runtime") or "–"),
        replicas="–" if ready is None else f"{ready}/{wanted}" if wanted is not None else str(ready),
        traffic=traffic.get(name, "–"),
        state=str(state.get("deployment") or "–").removeprefix("DEPLOYMENT_"),
        message=str(state.get("deployment_state_message") or ""),
    )
