"""How many CPUs this process may use: its affinity mask, or less where its cgroup caps it.

Read once per replica to choose a default concurrency. Reads `/proc` and `/sys` only.
"""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup")
_CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def cpu_share() -> float:
    """CPUs, possibly a fraction; more than 0."""
    share = float(len(os.sched_getaffinity(0)))
    for quota in (_quota_v2(), _quota_v1()):
        if quota is not None and quota > 0:
            share = min(share, quota)
    return share


def _quota_v2() -> float | None:
    """The tightest `cpu.max` from this process's cgroup up to the root."""
    try:
        relative = Path("/proc/self/cgroup").read_text().split("0::", 1)[1].splitlines()[0].strip("/")
    except (OSError, IndexError):
        return None
    folder = _CGROUP_V2 / relative
    quotas = []
    while folder.is_relative_to(_CGROUP_V2):
        try:
            limit, period = (folder / "cpu.max").read_text().split()
            if limit != "max":
                quotas.append(int(limit) / int(period))
        except (OSError, ValueError):
            pass
        folder = folder.parent
    return min(quotas, default=None)


def _quota_v1() -> float | None:
    try:
        limit = int((_CGROUP_V1 / "cpu.cfs_quota_us").read_text())
        period = int((_CGROUP_V1 / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return limit / period if limit > 0 and period > 0 else None
