"""Hears at once when a watched process ends, so that a dead replica is replaced in milliseconds, not at the next tick.

The reconcile loop uses it as a hint to look; what is true it learns from the substrate. Where the kernel cannot watch
processes, the tick alone has to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Exits:
    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watched: dict[str, int] = {}

    def watch(self, replica_id: str, pid: int) -> None:
        if replica_id in self._watched:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            self._wake()
            return
        self._watched[replica_id] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, replica_id)

    def forget(self, replica_id: str) -> None:
        descriptor = self._watched.pop(replica_id, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        for replica_id in list(self._watched):
            self.forget(replica_id)

    def _ended(self, replica_id: str) -> None:
        self.forget(replica_id)  # it stays readable for ever
        self._wake()
