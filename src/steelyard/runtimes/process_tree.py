"""Ends a process and all that descend from it, for a worker whose model may have started processes of its own.

A worker is in its replica's process group, so that it ends with that whatever happens; its own part of the group can
only be told by descent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def kill_tree(root: int) -> None:
    """Nobody else may reap `root` meanwhile but its parent, the caller's process."""
    doomed = [root]
    _signal(doomed, signal.SIGSTOP)  # each before its children are looked for: then it starts and reaps no more
    while found := _children(doomed):
        _signal(found, signal.SIGSTOP)
        doomed += found
    _signal(doomed, signal.SIGKILL)


def _children(parents: list[int]) -> list[int]:
    """Those that are not among the parents themselves."""
    known, found = set(parents), []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in known:
            continue
        with suppress(OSError, ValueError, IndexError):
            if int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1]) in known:
                found.append(int(entry.name))
    return found


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
