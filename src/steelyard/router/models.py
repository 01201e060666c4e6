"""`GET /v1/models` and `/v1/models/{id}` in the OpenAI dialect: every endpoint that can be queried is a model."""

from __future__ import annotations

from typing import Any

import msgspec

from steelyard.errors import NotFound
from steelyard.router.table import Endpoint, RoutingTable


def list_models(table: RoutingTable) -> bytes:
    """JSON of all models, by name."""
    models = [_model(endpoint) for _, endpoint in sorted(table.endpoints.items()) if not endpoint.stopped]
    return msgspec.json.encode({"object": "list", "data": models})


def get_model(table: RoutingTable, name: str) -> bytes:
    """JSON of one model. Raises NotFound."""
    endpoint = table.endpoints.get(name)
    if endpoint is None or endpoint.stopped:
        raise NotFound(f"There is no model named {name[:100]!r}; GET /v1/models lists them.", param="model")
    return msgspec.json.encode(_model(endpoint))


def _model(endpoint: Endpoint) -> dict[str, Any]:
    view = endpoint.view
    created_s = view.creation_timestamp // 1000
    return {"id": view.name, "object": "model", "created": created_s, "owned_by": view.creator}
