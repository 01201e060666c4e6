"""One complete HTTP request, and how its target becomes a path and a query.

Built by `connection.py` when the last byte of a body is in; read by every handler. Nobody changes one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import httptools

from steelyard.errors import BadRequest, SteelyardError

Headers = list[tuple[bytes, bytes]]

_OPENAI_PATHS: Final = frozenset(
    f"/serving-endpoints/{name}" for name in ("chat/completions", "completions", "embeddings", "responses")
)


def error_body(error: SteelyardError, path: str) -> bytes:
    """The error as JSON, in the shape that the clients of this path's dialect read."""
    if path.startswith("/v1/") or path in _OPENAI_PATHS:
        return error.openai_body()
    if path.startswith("/v2/") or path == "/v2":
        return error.open_inference_body()
    return error.body()


class Request:
    """`headers` have lower-cased names; `path` is percent-decoded; `target` is the origin-form as it was sent.

    `notes` is shared by requests whose heads are equal byte for byte (behind a router: but for the tail of `hop.py`):
    a handler may keep there what follows from the head alone. None when the head was not worth remembering.
    """

    __slots__ = ("body", "headers", "method", "notes", "path", "query", "target")

    def __init__(  # noqa: PLR0917 - positional on the hot path
        self,
        method: str,
        target: bytes,
        path: str,
        query: str,
        headers: Headers,
        body: bytes,
        notes: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.notes = notes

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header (`name` in lower case), or None."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}, {len(self.body)} bytes>"


@lru_cache(maxsize=512)
def split_target(url: bytes) -> tuple[bytes, str, str]:
    """Origin-form target, decoded path and raw query of a request line's URL (origin, absolute or asterisk form).

    Raises BadRequest for what could be read in two ways: dot segments, control characters, fragments, broken escapes.
    """
    target = url
    if not url.startswith(b"/"):
        if url == b"*":
            return url, "*", ""
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError as error:
            raise BadRequest("The request target is not a valid URL.") from error
        if parsed.schema not in {b"http", b"https"}:
            raise BadRequest("The request target must be a path or an http URL.")
        target = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
    if b"#" in url:
        raise BadRequest("The request target must not hold a fragment (#).")
    raw_path, _, query = target.partition(b"?")
    try:
        path = unquote_to_bytes(raw_path).decode() if b"%" in raw_path else raw_path.decode("ascii")
        text_query = query.decode("ascii")
    except UnicodeDecodeError as error:
        raise BadRequest("The request target is not valid UTF-8 once decoded.") from error
    if not path.isprintable() or "\\" in path:
        raise BadRequest("The request target holds a control character or a backslash.")
    if "/." in path and any(segment in {".", ".."} for segment in path.split("/")):
        raise BadRequest("The request target must not hold dot segments.")
    return target, path, text_query
