"""What a router says by itself on the paths of the Open Inference Protocol: who it is, and which models are ready.

Metadata and inference go to a replica, by the table's routes; here is only what the snapshot in force tells.
"""

from __future__ import annotations

import msgspec

from steelyard import __version__
from steelyard.errors import Unavailable
from steelyard.router.table import Endpoint, Entity, RoutingTable

_SERVER = {"name": "steelyard", "version": __version__, "extensions": ["binary_tensor_data"]}


def describe(table: RoutingTable, path: str) -> bytes | None:
    """JSON for `/v2` and `/v2/models/{name}[/versions/{version}]/ready`; None for any other path.

    Raises Unavailable for a model that is not ready.
    """
    match path.split("/"):
        case ["", "v2"]:
            return msgspec.json.encode(_SERVER)
        case ["", "v2", "models", name, "ready"] if name in table.endpoints:
            endpoint = table.endpoints[name]
            return _ready(endpoint, [entity for entity in endpoint.entities if entity.percentage])
        case ["", "v2", "models", name, "versions", version, "ready"] if name in table.endpoints:
            endpoint = table.endpoints[name]
            named = [entity for entity in endpoint.entities if entity.name == version]
            return _ready(endpoint, named) if named else None
    return None


def _ready(endpoint: Endpoint, entities: list[Entity]) -> bytes:
    if endpoint.stopped:
        raise Unavailable(f"Endpoint {endpoint.name!r} is stopped.")
    if not entities or not all(entity.replicas for entity in entities):
        raise Unavailable(f"Endpoint {endpoint.name!r} has no ready replica now.", retry_after_s=1.0)
    return msgspec.json.encode({"name": endpoint.name, "ready": True})
