"""Starts a server on one core and reads what all of its processes use: CPU time, memory, descriptors, threads.

Used by `classic.py`, `soak.py` and `router.py`. A process belongs to a server when it descends from the started one or
carries its mark in its environment, so that daemons which leave their parent are counted too. It ends nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SERVER_CORE = 0
LOAD_CORE = (os.cpu_count() or 1) - 1
_MARK = "BENCHMARK_SERVER"
_STOP_S = 15.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process holds at one moment."""

    rss_bytes: int
    descriptors: int
    threads: int


class Pinned:
    """A started command and its descendants, on `core` (None: wherever the system puts them).

    With `with`, it ends with the block. Output goes to `log`.
    """

    def __init__(
        self, command: list[str], log: Path, core: int | None = SERVER_CORE, env: Mapping[str, str] | None = None
    ) -> None:
        self._mark = f"{_MARK}={os.getpid()}-{log.name}-{time.monotonic_ns()}"
        name, _, value = self._mark.partition("=")
        self._core = core
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **(env or {}), name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509
            )

    def pids(self) -> list[int]:
        """All living processes of the server."""
        parents = {pid: _parent(pid) for pid in _all_pids()}
        found = {pid for pid in parents if pid == self.process.pid or self._is_marked(pid)}
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        return sorted(found)

    def pin_again(self) -> None:
        """Put every thread back on the core, should a server have chosen cores of its own."""
        if self._core is None:
            return
        for pid in self.pids():
            with suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), {self._core})

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for whatever is left after a while."""
        pids = self.pids()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
        for pid in {*pids, *self.pids()}:
            if pid != self.process.pid and (self._is_marked(pid) or _parent(pid) in pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])

    def _is_marked(self, pid: int) -> bool:
        try:
            return self._mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def cpu_s(pids: list[int]) -> float:
    """User and system time so far, with that of the children that were waited for."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            ticks += sum(int(field) for field in _stat(pid)[11:15])
    return ticks / TICKS_PER_S


def pss_bytes(pids: list[int]) -> int:
    """Memory in use, of shared pages the proportional part."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def usage(pid: int) -> Usage | None:
    """None when the process is gone."""
    try:
        resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return None
    return Usage(resident_pages * PAGE_BYTES, descriptors, threads)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    """The fields after the command's name, which may itself hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    try:
        return int(_stat(pid)[1])
    except (OSError, IndexError):
        return 0
