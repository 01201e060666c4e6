"""What this machine offers a platform: each check looks at one thing and says ok, warn or fail, and what would help.

Called by `doctor`. Checks read and probe; they change nothing and never raise.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import socket
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from steelyard.observe.machine import usable_cores
from steelyard.settings import Settings

SOCKET_PATH_BYTES = 107  # sun_path without its final zero
SOCKET_NAME_BYTES = 48  # room for the longest replica's id and ".sock"
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


def python_version() -> Check:
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 11):  # noqa: UP036 - says so to whoever runs it on an older one
        return Check("python", "ok", text)
    return Check("python", "fail", text, "Steelyard needs Python 3.11 or newer.")


def optional_package(package: str, purpose: str, name: str) -> Check:
    """Whether the optional `package` is there; without it only `purpose` is missing."""
    try:
        return Check(package, "ok", f"{version(package)}, for {purpose}")
    except PackageNotFoundError:
        return Check(package, "warn", f"not installed; needed for {purpose}", f"pip install 'steelyard[{name}]'")


def processors() -> Check:
    usable, machine = usable_cores(), os.cpu_count() or 1
    text = f"{usable} of {machine}" if usable != machine else str(usable)
    return Check("processors", "ok", text + ", by affinity and control group" * (usable != machine))


def memory() -> Check:
    fields = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    try:
        free_bytes = int(fields["MemAvailable"].split()[0]) * 1024
    except (KeyError, ValueError, IndexError):
        return Check("memory", "warn", "unknown", "/proc/meminfo cannot be read.")
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        free_bytes = min(free_bytes, int(limit) - int(used))
    text = f"{free_bytes / GIB:.1f} GiB free"
    if free_bytes >= 2 * GIB:
        return Check("memory", "ok", text)
    return Check("memory", "warn", text, "The three samples need about 2 GiB.")


def disk(settings: Settings) -> Check:
    folder = settings.home
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free_bytes = shutil.disk_usage(folder).free
    text = f"{free_bytes / GIB:.1f} GiB free at {settings.home}"
    if not os.access(folder, os.W_OK):
        return Check("disk", "fail", f"{folder} is not writable", "Choose another home with STEELYARD_HOME.")
    if free_bytes >= GIB:
        return Check("disk", "ok", text)
    return Check("disk", "warn", text, "Models and logs need room; STEELYARD_HOME moves the home.")


def kernel() -> Check:
    missing = []
    if not sys.platform.startswith("linux") or not Path("/proc/self/stat").exists():
        missing.append("/proc")
    if not hasattr(socket, "SO_REUSEPORT"):
        missing.append("SO_REUSEPORT")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        missing.append("pidfd_open")
    if missing:
        return Check("kernel", "fail", f"without {', '.join(missing)}", "Steelyard runs on Linux 5.3 or newer.")
    return Check("kernel", "ok", f"{os.uname().sysname} {os.uname().release}")


def open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= 4096:
        return Check("open files", "ok", f"limit {soft}")
    return Check("open files", "warn", f"limit {soft} (hard {hard})", "Each connection needs one: ulimit -n 65536.")


def sockets(settings: Settings) -> Check:
    length = len(os.fsencode(settings.sockets)) + 1 + SOCKET_NAME_BYTES
    if length <= SOCKET_PATH_BYTES:
        return Check("sockets", "ok", str(settings.sockets))
    return Check("sockets", "fail", f"{settings.sockets} is too long", "Set TMPDIR to a shorter folder, such as /tmp.")


def port_is_free(host: str, port: int) -> bool:
    """Nobody listens there. Unlike the routers' own sockets this one does not share, so that it sees them too."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def platform_on(home: Path) -> str | None:
    """Process id of the platform that holds `home`; None when there is none."""
    try:
        with (home / "supervisor.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read(32).strip() or "unknown"
    except OSError:
        pass
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
