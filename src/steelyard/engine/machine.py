"""What this process may really use of the machine: cores and memory after affinity and control groups.

The engine process asks once at its start. `nproc` lies in containers, and a thread too many is worse than one too
few: two OpenMP threads on busy cores spin against each other.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Whole cores, at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota_cores()
    return max(1, min(cores, math.floor(quota + 0.5)) if quota else cores)


def memory_limit_bytes() -> int:
    """The control group's limit, or the machine's memory where there is none."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _number(folder / name)
        for root, name in ((_CGROUP, "memory.max"), (_CGROUP / "memory", "memory.limit_in_bytes"))
        for folder in (root, root / _own_group(root))
    ]
    return min([physical, *(limit for limit in limits if limit)])


def available_memory_bytes() -> int:
    """What the machine could still give without swapping (it may be less than the limit leaves)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return memory_limit_bytes()


def _cpu_quota_cores() -> float | None:
    for folder in (_CGROUP, _CGROUP / _own_group(_CGROUP)):
        text = _text(folder / "cpu.max").split()
        if len(text) == 2 and text[0].isdigit() and text[1].isdigit():
            return int(text[0]) / int(text[1])
    quota, period = _number(_CGROUP / "cpu/cpu.cfs_quota_us"), _number(_CGROUP / "cpu/cpu.cfs_period_us")
    return quota / period if quota and period else None


def _own_group(root: Path) -> str:
    """This process's group below `root`, relative; empty at the top."""
    controller = "" if root == _CGROUP else root.name
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        if names == controller or (controller and controller in names.split(",")):
            return path.lstrip("/")
    return ""


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None
