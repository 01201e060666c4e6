"""What this process may really use of the machine: cores and memory after affinity and control groups.

Asked once at a process's start, by whoever sizes threads, concurrency or caches. `nproc` lies in containers, and a
thread too many is worse than one too few: two OpenMP threads on busy cores spin against each other. Never raises.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Whole cores, at least 1; a fraction of half a core or more counts as one."""
    cores = len(os.sched_getaffinity(0))
    quota = min(_cpu_quotas_cores(), default=math.inf)
    return max(1, min(cores, math.floor(quota + 0.5)) if quota < cores else cores)


def memory_limit_bytes() -> int:
    """The tightest control group's limit, or the machine's memory where there is none."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_number(folder / "memory.max") for folder in _groups(_CGROUP)]
    limits += [_number(folder / "memory.limit_in_bytes") for folder in _groups(_CGROUP / "memory")]
    return min([physical, *(limit for limit in limits if limit)])


def available_memory_bytes() -> int:
    """What the machine could still give without swapping (it may be less than the limit leaves)."""
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return memory_limit_bytes()


def _cpu_quotas_cores() -> Iterator[float]:
    """Of each control group above this process that limits it."""
    for folder in _groups(_CGROUP):
        text = _text(folder / "cpu.max").split()
        if len(text) == 2 and text[0].isdigit() and text[1].isdigit():
            yield int(text[0]) / int(text[1])
    for folder in _groups(_CGROUP / "cpu"):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota and period:
            yield quota / period


def _groups(root: Path) -> Iterator[Path]:
    """This process's control group below the hierarchy at `root`, then each one around it, up to `root` itself."""
    controller = "" if root == _CGROUP else root.name
    folder = root
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        if names == controller or (controller and controller in names.split(",")):
            folder = root / path.lstrip("/")
    while folder != root and folder.is_relative_to(root):
        yield folder
        folder = folder.parent
    yield root


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None
