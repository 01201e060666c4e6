"""The ground on which a platform stands: its home, its lock, its sockets folder, its port, cleared of an earlier one.

Used by `platform.py` at start. Each refusal is a `StartError`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from steelyard.contracts.replica import ProcessRecord
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate, processes

LEFTOVER_PATIENCE_S = 10.0  # leftovers have lost their lifeline and are ending by themselves
KILL_PATIENCE_S = 10.0  # what SIGKILL does not end by then hangs in the kernel, or is not ours to kill


class StartError(Exception):
    """Why the platform cannot start, in one sentence."""


@contextmanager
def locked_home(home: Path) -> Iterator[None]:
    """Makes the home folder (0700) and holds its lock. Raises StartError when another platform has it."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(home / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"The home folder {home} cannot be used: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise StartError(f"A platform runs on {home} already (process {holder}).") from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def private_folder(path: Path) -> None:
    """Makes a folder that only we can enter. Raises StartError when somebody else's stands there."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StartError(f"{path} is not a folder of ours; remove it or set TMPDIR to another place.")
    path.chmod(0o700)


def free_port(host: str, port: int) -> int:
    """`port`, or a free one for 0. Raises StartError when it cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise StartError(f"{host}:{port} cannot be listened on: {error.strerror}.") from error
        return int(probe.getsockname()[1])


class ProcessFiles:
    """Which processes the supervisor has started, on disk, so that a later one can end what a killed one left."""

    def __init__(self, settings: Settings) -> None:
        self._dir = settings.home / "run"
        self._substrate = LocalSubstrate(settings.replicas_dir)
        self._dir.mkdir(mode=0o700, exist_ok=True)

    def write(self, name: str, pid: int) -> None:
        """On a full disk the record is lost, not the process: its lifeline still ends it with us."""
        with suppress(OSError):
            record = processes.record_of_child(pid)
            (self._dir / f"{name}.json").write_bytes(msgspec.json.encode(record))

    def running(self) -> list[ProcessRecord]:
        """Control, routers and replicas of this home whose process groups are not empty."""
        found = [self._read(path) for path in self._dir.glob("*.json")]
        found += [self._read(path) for path in (self._substrate.record_files())]
        return [record for record in found if record is not None and processes.group_is_alive(record)]

    async def clear(self, patience_s: float) -> int:
        """Ends all that runs: SIGTERM, then SIGKILL when the patience is over. Returns how many had to be killed.

        Replicas that have ended are put away: they ended with their platform, and the next must not read it as a death.
        Raises StartError when something outlives even SIGKILL.
        """
        deadline_s = time.monotonic() + patience_s
        self._substrate.observe()  # also finds and records what a killed control had no time to record
        for record in self.running():
            processes.send_signal(record, signal.SIGTERM)
        killed: set[int] = set()
        while running := self.running():
            if time.monotonic() >= deadline_s + KILL_PATIENCE_S:
                pids = ", ".join(str(record.pid) for record in running)
                raise StartError(f"These processes of the platform cannot be ended: {pids}.")
            if time.monotonic() >= deadline_s:
                for record in running:
                    killed.add(record.pid)
                    processes.kill_group(record)
            await asyncio.sleep(0.05)
        for path in self._dir.glob("*.json"):
            path.unlink(missing_ok=True)
        for item in self._substrate.observe():
            if not item.alive:
                self._substrate.retire(item.spec.id)
        return len(killed)

    @staticmethod
    def _read(path: Path) -> ProcessRecord | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
        except (OSError, msgspec.MsgspecError):
            return None
