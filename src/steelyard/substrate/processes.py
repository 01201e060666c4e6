"""Facts about processes from /proc, and signals that cannot hit a stranger who was given a dead process's number.

Used by the local substrate and by the supervisor. Linux only. Nothing here blocks.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steelyard.contracts.replica import ProcessRecord

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Stat:
    pid: int
    state: str
    group: int
    start_ticks: int


def record_of(pid: int) -> ProcessRecord | None:
    """Identifies a running process; None when there is none, or only a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else _record(stat)


def record_of_child(pid: int) -> ProcessRecord:
    """Identifies a child that was not reaped yet, so that it is known even if it has ended. Raises OSError if not."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(f"There is no process {pid}.")
    return _record(stat)


def is_alive(record: ProcessRecord) -> bool:
    """True while that very process runs. A zombie is dead."""
    return record_of(record.pid) == record


def send_signal(record: ProcessRecord, signum: int) -> None:
    """To the process alone; does nothing when it is gone."""
    if is_alive(record):
        with suppress(ProcessLookupError):
            os.kill(record.pid, signum)


def kill_group(record: ProcessRecord) -> None:
    """SIGKILL for everything in the group that `record` leads or led; does nothing when there is nothing."""
    if group_is_alive(record):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(record.pid, signal.SIGKILL)


def group_is_alive(record: ProcessRecord) -> bool:
    """True while any member of the group runs, its leader or not.

    The kernel gives a number to no new process while a group bears it, so a running stranger with the leader's number
    proves that the old group is gone. After a reboot nothing of it can run, whoever bears the number now.
    """
    if record.boot_id != _boot_id():
        return False
    leader = _stat(record.pid)
    if leader is not None and leader.start_ticks != record.start_ticks:
        return False
    return any(stat.group == record.pid and stat.state not in "ZX" for stat in _all())


def group_memory_bytes(leader: int) -> int:
    """What the processes of a group hold, pages that they share counted by their share. 0: there is nothing."""
    total = 0
    for stat in _all():
        if stat.group != leader:
            continue
        with suppress(OSError):  # it has ended, or is not ours
            for line in (_PROC / str(stat.pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def reap(pid: int) -> str | None:
    """How our child `pid` ended ("exited with status 1", "was killed by SIGKILL"), taking its zombie away.

    None while it runs, or when it is no child of ours.
    """
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if found == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def find_by_argument(argument: str) -> ProcessRecord | None:
    """The running process group leader with `argument` on its command line, if any."""
    wanted = os.fsencode(argument)
    for stat in _all():
        if stat.group != stat.pid or stat.state in "ZX":
            continue
        with suppress(OSError):
            if wanted in (_PROC / str(stat.pid) / "cmdline").read_bytes().split(b"\0"):
                return _record(stat)
    return None


def _record(stat: _Stat) -> ProcessRecord:
    return ProcessRecord(pid=stat.pid, start_ticks=stat.start_ticks, boot_id=_boot_id())


@functools.cache
def _boot_id() -> str:
    """Empty where the kernel does not tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _all() -> Iterator[_Stat]:
    for name in os.listdir(_PROC):
        if name.isdigit():
            stat = _stat(int(name))
            if stat is not None:
                yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return _Stat(pid=pid, state=fields[0], group=int(fields[2]), start_ticks=int(fields[19]))
