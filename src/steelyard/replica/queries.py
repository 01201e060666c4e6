"""From an HTTP exchange to the `Query` that runtimes know: its dialect, its media type, where its JSON ends.

Called by the handlers of predict models. What follows from the head alone is worked out once per distinct head.
"""

from __future__ import annotations

from typing import Any, Final

from steelyard.errors import InvalidParameter
from steelyard.protocols.media import Media, media_of, require_json
from steelyard.protocols.query import Dialect, Query
from steelyard.replica.exchange import Exchange
from steelyard.wire.server import Request

_JSON_BYTES: Final = b"inference-header-content-length"


def media_of_request(request: Request) -> Media:
    """Raises UnsupportedMediaType (415)."""
    notes: dict[str, Any] | None = request.notes
    if notes is not None and (known := notes.get("media")) is not None:
        media: Media = known
        return media
    header = request.header(b"content-type")
    media = media_of(header, request.body)
    if notes is not None and header is not None:
        notes["media"] = media
    return media


def query_of(exchange: Exchange, dialect: Dialect, model: str, version: str) -> Query:
    """`model` and `version`: names of endpoint and served entity. Raises UnsupportedMediaType or InvalidParameter."""
    request = exchange.request
    if dialect is Dialect.MLFLOW:
        return Query(dialect, request.body, media_of_request(request), exchange.id, model, version)
    json_bytes = _json_bytes(request) if dialect is Dialect.OPEN_INFERENCE else None
    if json_bytes is None:
        require_json(request.header(b"content-type"), request.body)
    return Query(dialect, request.body, Media.JSON, exchange.id, model, version, json_bytes)


def _json_bytes(request: Request) -> int | None:
    value = request.header(_JSON_BYTES)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 12:
        name = _JSON_BYTES.decode()
        raise InvalidParameter(f"The header {name} must be a whole number of bytes.", param=name)
    return int(value)
