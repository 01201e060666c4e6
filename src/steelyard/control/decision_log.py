"""The decision log on disk: `decisions.jsonl` in the home, and the one before it; together they stay bounded.

The autoscaler appends, and begins another file when this one is full. Blocking: call it off the loop. A disk that is
full or gone costs the log, never a decision.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from steelyard.observe.logs import get_logger

CURRENT = "decisions.jsonl"
PREVIOUS = "decisions-previous.jsonl"
MOST_BYTES = 16 * 1024 * 1024  # of each of the two


class DecisionLog:
    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._failed = False
        self._is_first = True  # what a control wrote that was killed may end within a line

    @property
    def file(self) -> Path:
        return self._folder / CURRENT

    def append(self, lines: Sequence[str]) -> bool:
        """True when the file is full now: `turn` it, and begin the next with what a reader must know."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.file.open("a+b") as file:
                if self._is_first and file.seek(0, os.SEEK_END) and not _ends_a_line(file):
                    file.write(b"\n")
                self._is_first = False
                file.writelines(f"{line}\n".encode() for line in lines)
                full = file.tell() >= self._most_bytes
        except OSError as error:
            self._note_failure(error)
            return False
        self._failed = False
        return full

    def turn(self) -> None:
        try:
            self.file.replace(self._folder / PREVIOUS)
        except OSError as error:
            self._note_failure(error)

    def _note_failure(self, error: OSError) -> None:
        if not self._failed:  # one line, not one every few seconds
            get_logger().warning("decisions_not_logged", reason=str(error))
        self._failed = True


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
