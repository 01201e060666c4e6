"""Heads that were parsed before: a client that keeps asking sends the same head again and again, byte for byte.

The assembler looks here before it asks llhttp, and only where the parse could not come out differently: at a request
boundary, the whole request in one read. Equal bytes then mean the same request, so a hit skips the parser and every
callback (a sixth of the router's time per request); anything else takes the ordinary way.
"""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import mypyc_attr

from steelyard.wire.request import Headers

_MAX_HEADS: Final = 512
_MAX_HEAD_BYTES: Final = 2048


class KnownHead:
    """What a head means. `notes` is for handlers: what follows from the head alone, kept as long as the head is."""

    __slots__ = ("content_length", "headers", "method", "notes", "path", "query", "target")

    def __init__(self, method: str, target: tuple[bytes, str, str], headers: Headers, content_length: int) -> None:
        self.method = method
        self.target, self.path, self.query = target
        self.headers = headers
        self.content_length = content_length
        self.notes: dict[str, Any] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class HeadMemo:
    """Bounded: when it is full it starts anew, so that ever-changing heads cost little and hold little."""

    __slots__ = ("_heads", "get")

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}
        self.get = self._heads.get

    def keep(self, head: bytes, known: KnownHead) -> None:
        if len(head) > _MAX_HEAD_BYTES:
            return
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[head] = known
