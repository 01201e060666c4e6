"""Server-sent events: framing one, telling a client that a stream broke, and watching a stream that passes through.

The router uses it on pieces that it forwards untouched; a replica uses `encode_event`. Nothing here buffers a stream.
"""

from __future__ import annotations

from steelyard.errors import SteelyardError

CONTENT_TYPE = b"text/event-stream"
DONE = b"data: [DONE]\n\n"
_TAIL_BYTES = 32


def encode_event(data: bytes) -> bytes:
    """One event. `data` must be one line, as JSON is."""
    return b"data: " + data + b"\n\n"


def error_event(error: SteelyardError) -> bytes:
    """The event that official OpenAI clients raise as an error: `data: {"error": {...}}`."""
    return encode_event(error.openai_body())


class StreamWatch:
    """Sees the pieces of one stream go by: whether it stands between two events, and whether it said [DONE].

    `events` have ended so far. JSON has no line end within, so two in a row end an event.
    """

    __slots__ = ("_tail", "events")

    def __init__(self) -> None:
        self._tail = b""
        self.events = 0

    def see(self, piece: bytes) -> None:
        # An end may lie across two pieces.
        ends = (self._tail[-1:] + piece).count(b"\n\n")
        self.events += ends or (self._tail[-2:] + piece).count(b"\n\r\n")
        self._tail = (piece if len(piece) >= _TAIL_BYTES else self._tail + piece)[-_TAIL_BYTES:]

    @property
    def at_boundary(self) -> bool:
        """True when the last byte seen completes an event (or nothing was seen)."""
        return not self._tail or self._tail.endswith((b"\n\n", b"\r\n\r\n"))

    @property
    def done(self) -> bool:
        """True when the last event was `[DONE]` (the space is optional): only then did an OpenAI stream end well."""
        return self._tail.rstrip(b"\r\n").endswith((b"data: [DONE]", b"data:[DONE]"))
