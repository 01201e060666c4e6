"""Server-sent events as OpenAI's clients read them. A stream that breaks ends with `error_event` and no `DONE`."""

from __future__ import annotations

from steelyard.errors import SteelyardError

DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    """One event; `data` is JSON, which never holds a line break."""
    return b"data: " + data + b"\n\n"


def error_event(error: SteelyardError) -> bytes:
    """The last event of a stream that failed after it had begun."""
    return event(error.body())
