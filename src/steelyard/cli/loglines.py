"""Turns the JSON lines of our own processes' logs into lines for people. Called by `logs` and `deploy`.

Pure. What a model itself printed passes through unchanged, and so does whatever is not a line of ours.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

# The reader asked for this endpoint's replicas, so that naming them in every line tells nothing.
_CONTEXT = frozenset({"event", "level", "timestamp", "process", "replica", "endpoint", "trace"})


def readable(text: str) -> list[str]:
    """The lines of a log: `12:34:56 event key=value …` for each of ours, with its traceback below it."""
    return [shown for line in text.splitlines() for shown in _shown(line)]


def _shown(line: str) -> list[str]:
    event = _event(line)
    if event is None:
        return [line]
    level = str(event.get("level", "info"))
    words = [_clock(event["timestamp"]), *([level] if level != "info" else []), event["event"]]
    words += [f"{key}={_value(value)}" for key, value in event.items() if key not in _CONTEXT and value != ""]
    return [" ".join(words), *str(event.get("trace") or "").splitlines()]


def _event(line: str) -> dict[str, Any] | None:
    """A line of ours, or None: a model may print JSON too."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    ours = all(isinstance(event.get(key), str) for key in ("event", "process", "timestamp"))
    return event if ours else None


def _clock(timestamp: str) -> str:
    """Local time of day; a timestamp of an unknown form as it is."""
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%H:%M:%S}"
    except ValueError:
        return timestamp


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
