"""How many CPUs this process really has: by affinity and by its control group, whichever is less.

Numeric libraries count the machine's cores instead and start as many threads, which then fight for a small share.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def cpu_share(cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole CPUs, at least 1."""
    available = len(os.sched_getaffinity(0))
    quota = _quota(cgroup_root)
    return max(1, available if quota is None else min(available, math.ceil(quota)))


def thread_variables(given: Mapping[str, str], cpus: int) -> dict[str, str]:
    """Thread counts for numeric libraries, except those that `given` sets already."""
    return {name: str(cpus) for name in _THREAD_VARIABLES if name not in given}


def _quota(root: Path) -> float | None:
    """CPUs that the control group allows; None when it does not limit or cannot be read."""
    try:  # version 2
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:  # version 1
        quota_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 and period_us > 0 else None
    except (OSError, ValueError):
        return None
