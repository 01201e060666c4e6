"""The worker's log: JSON lines on stderr in the shape of the replica's own, written without its libraries.

`request` names the query that a thread is at; each line of that thread carries it. One write per line, so that the
lines of several threads and processes never mix.
"""

from __future__ import annotations

import contextvars
import datetime
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

labels: dict[str, str] = {}  # whose model it is: set once, at the start
request = contextvars.ContextVar("request", default="")
_STDERR = 2


@contextmanager
def about(request_id: str) -> Iterator[None]:
    """What this thread logs in the block is about that request."""
    token = request.set(request_id)
    try:
        yield
    finally:
        request.reset(token)


def log(level: str, event: str, **values: object) -> None:
    """One line. Never raises: a full disk must not fail a prediction."""
    line: dict[str, object] = {**labels, "process": "worker", "pid": os.getpid()}
    if request.get():
        line["request_id"] = request.get()
    now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017
    line |= {**values, "event": event, "level": level, "timestamp": now.isoformat().replace("+00:00", "Z")}
    with suppress(OSError, ValueError):
        os.write(_STDERR, json.dumps(line, default=str).encode() + b"\n")
