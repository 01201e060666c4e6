"""Keeps the router's view current: long-polls control, applies what comes, and keeps the last snapshot on disk.

Started once by the process. When control is away the routing in force stays in force; a router that starts without
control begins with the snapshot on disk. A snapshot that cannot be read or applied is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from steelyard.contracts.snapshot import Snapshot
from steelyard.errors import SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.router.kept_file import replace_file
from steelyard.wire.client import Pool
from steelyard.wire.fetch import fetch

SNAPSHOT_FILE = "router-snapshot.json"
_WAIT_S = 20.0
_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 1.0

log = get_logger()


class SnapshotFeed:
    """`apply` is called on the loop with each new snapshot; `on_control` with whether control answers.

    When `apply` raises, the routing in force stays, and control is asked again after a pause.
    """

    def __init__(
        self,
        pool: Pool,
        path: Path,
        router_index: int,
        apply: Callable[[Snapshot], None],
        on_control: Callable[[bool], None],
    ) -> None:
        self._pool = pool
        self._path = path
        self._index = router_index
        self._apply = apply
        self._on_control = on_control
        self._version = 0
        self._refused_version = 0  # the last one that could not be applied
        self._connected: bool | None = None

    def load(self) -> bool:
        """Apply the snapshot on disk. False when there is none, or none that can be read and applied."""
        try:
            snapshot = msgspec.json.decode(self._path.read_bytes(), type=Snapshot)
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError) as error:
            log.warning("snapshot_on_disk_unreadable", path=str(self._path), error=str(error))
            return False
        return self._take(snapshot, "disk")

    async def run(self) -> None:
        """Poll until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                snapshot = await self._poll()
                self._note_control(True, "")
                if snapshot is None or snapshot.version == self._version:
                    fine = True
                elif fine := self._take(snapshot, "control"):
                    await asyncio.to_thread(self._save, snapshot)
            except (SteelyardError, msgspec.DecodeError) as error:
                self._note_control(False, str(error))
                fine = False
            if fine:
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(_MAX_PAUSE_S, pause_s * 2)

    async def _poll(self) -> Snapshot | None:
        target = f"/internal/snapshot?after={self._version}&router={self._index}&wait_s={_WAIT_S:g}"
        response = await fetch(self._pool, "GET", target.encode(), timeout_s=_WAIT_S + 10.0)
        if response.status in {204, 304}:
            return None
        if response.status != 200:
            raise SteelyardError(f"Control answered {response.status} to a poll for the snapshot.")
        return msgspec.json.decode(response.body, type=Snapshot)

    def _take(self, snapshot: Snapshot, source: str) -> bool:
        try:
            self._apply(snapshot)
        except Exception:  # the router goes on with what it has
            if snapshot.version != self._refused_version:  # control offers it again and again: one line is enough
                log.exception("snapshot_not_applied", version=snapshot.version, source=source)
            self._refused_version = snapshot.version
            return False
        self._version = snapshot.version
        log.info("snapshot_applied", version=snapshot.version, source=source, endpoints=len(snapshot.endpoints))
        return True

    def _note_control(self, connected: bool, error: str) -> None:
        if connected is self._connected:
            return
        self._connected = connected
        self._on_control(connected)
        if connected:
            log.info("control_connected")
        else:
            log.warning("control_away", error=error)

    def _save(self, snapshot: Snapshot) -> None:
        try:
            replace_file(self._path, msgspec.json.encode(snapshot))
        except OSError as error:
            log.warning("snapshot_not_saved", path=str(self._path), error=str(error))
