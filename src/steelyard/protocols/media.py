"""What a Content-Type header says, read as RFC 9110 does: types are case-insensitive and quoting is legal.

Called by the replica before it parses a body; never looks into the body beyond its first character.
"""

from __future__ import annotations

import enum

from steelyard.errors import UnsupportedMediaType


class Media(enum.Enum):
    JSON = "application/json"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"
    PARQUET = "application/vnd.apache.parquet"

    @property
    def is_columnar(self) -> bool:
        return self in (Media.ARROW, Media.PARQUET)


_UTF8 = {"utf-8", "utf8", "us-ascii", "ascii"}
_KINDS = {
    "application/json": Media.JSON,
    "text/csv": Media.CSV,
    "application/vnd.apache.arrow.stream": Media.ARROW,
    "application/vnd.apache.parquet": Media.PARQUET,
    "application/x-parquet": Media.PARQUET,
}


def media_of(content_type: bytes | None, body: bytes) -> Media:
    """A missing header is JSON when the body looks like it. Raises UnsupportedMediaType (415)."""
    if content_type == b"application/json":
        return Media.JSON
    if content_type is None or not content_type.strip():
        if body.lstrip()[:1] in (b"{", b"[", b""):
            return Media.JSON
        raise UnsupportedMediaType(
            "Send a Content-Type header: application/json, text/csv, or an Arrow or Parquet type."
        )
    kind, *parameters = content_type.decode("latin-1").split(";")
    kind = kind.strip().lower()
    charset = _parameter(parameters, "charset")
    if charset is not None and charset not in _UTF8:
        raise UnsupportedMediaType("The charset must be UTF-8.")
    media = _KINDS.get(kind)
    if media is not None:
        return media
    if kind.startswith("application/") and kind.endswith("+json"):
        return Media.JSON
    raise UnsupportedMediaType(
        "The Content-Type must be application/json, text/csv, application/vnd.apache.arrow.stream "
        "or application/vnd.apache.parquet."
    )


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
