"""The supervisor's own log: a file of JSON lines, since its terminal belongs to the command that runs it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str, **values: object) -> None:
        """A disk that is full must not end the platform: then the line is lost."""
        line = msgspec.json.encode(
            {"event": event, **values, "process": "supervisor", "timestamp": datetime.now(UTC).isoformat()}
        )
        try:
            with self.path.open("ab") as file:
                file.write(line + b"\n")
        except OSError:
            pass
