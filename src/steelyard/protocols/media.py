"""What a Content-Type header says, read as RFC 9110 does: types are case-insensitive and quoting is legal.

Called by the replica before it parses a body; never looks into the body beyond its first character.
"""

from __future__ import annotations

import enum

from steelyard.errors import UnsupportedMediaType


class Media(enum.Enum):
    JSON = "application/json"
    CSV = "text/csv"


_UTF8 = {"utf-8", "utf8", "us-ascii", "ascii"}


def media_of(content_type: bytes | None, body: bytes) -> Media:
    """JSON or CSV. A missing header is JSON when the body looks like it. Raises UnsupportedMediaType (415)."""
    if content_type is None or not content_type.strip():
        if body.lstrip()[:1] in (b"{", b"[", b""):
            return Media.JSON
        raise UnsupportedMediaType("Send a Content-Type header: application/json or text/csv.")
    kind, *parameters = content_type.decode("latin-1").split(";")
    kind = kind.strip().lower()
    charset = _parameter(parameters, "charset")
    if charset is not None and charset not in _UTF8:
        raise UnsupportedMediaType("The charset must be UTF-8.")
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return Media.JSON
    if kind == "text/csv":
        return Media.CSV
    raise UnsupportedMediaType("The Content-Type must be application/json or text/csv.")


def require_json(content_type: bytes | None, body: bytes) -> None:
    """Raises UnsupportedMediaType unless the body is JSON by its header or its looks."""
    if media_of(content_type, body) is not Media.JSON:
        raise UnsupportedMediaType("The Content-Type must be application/json.")


def _parameter(parameters: list[str], name: str) -> str | None:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"').lower()
    return None
