"""The real processes of a running platform, found by its home folder in their environment or command line."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    command: str

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, how)


def processes_of(home: Path, role: str = "") -> list[Process]:
    """Live processes (zombies do not count) that belong to `home` and whose command line holds `role`."""
    marker = f"STEELYARD_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        ours = marker in environment or str(home) in command
        if ours and state != "Z" and role in command:
            found.append(Process(int(entry.name), command))
    return sorted(found, key=lambda process: process.pid)
