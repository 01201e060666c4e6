"""Log files that a process writes by itself and that must not fill the disk.

The writer holds the file open for appending, so it can be emptied under its hands; what it held moves to a second
file of the same size at most. Lines written between copy and cut are lost, which a log may afford.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LOG_LIMIT_BYTES = 8 * 1024 * 1024


def previous(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


def bound(path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """When the file has outgrown the limit, keep its last part beside it and empty it.

    On a full disk it is emptied all the same: that is when it matters most.
    """
    try:
        if path.stat().st_size <= limit_bytes:
            return
        kept = tail(path, limit_bytes)
        with suppress(OSError):
            previous(path).write_bytes(kept)
        os.truncate(path, 0)
    except FileNotFoundError:
        return


def tail(path: Path, limit_bytes: int) -> bytes:
    """The last bytes, from the start of a line where that is possible; empty when there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            data = file.read(limit_bytes)
    except FileNotFoundError:
        return b""
    if size > limit_bytes and b"\n" in data[:-1]:
        data = data[data.index(b"\n") + 1 :]
    return data


def head(path: Path, limit_bytes: int) -> bytes:
    """The first bytes that were written, as far as they are still kept; empty when there is no file."""
    for candidate in (previous(path), path):
        try:
            with candidate.open("rb") as file:
                return file.read(limit_bytes)
        except FileNotFoundError:
            continue
    return b""


def last_lines(path: Path, count: int = 5, limit_bytes: int = 2_000) -> str:
    """The last lines with text in them, joined by newlines."""
    lines = [line for line in tail(path, limit_bytes).decode(errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-count:])


def last_words(path: Path, limit_bytes: int = 16_000, shown: int = 500) -> str:
    """The end of what was printed by others than us, whose lines are JSON objects; at most so many characters."""
    lines = [line.strip() for line in tail(path, limit_bytes).decode(errors="replace").splitlines()]
    return " / ".join(line for line in lines if line and not line.startswith("{"))[-shown:]
