"""Which machine this is, as far as it matters for what a request costs. Read from /proc; never fails."""

from __future__ import annotations

import platform
from pathlib import Path

from steelyard.contracts.cost import Hardware
from steelyard.observe.machine import memory_limit_bytes, usable_cores


def hardware() -> Hardware:
    return Hardware(
        processor=_field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        cores=usable_cores(),
        memory_bytes=memory_limit_bytes(),
        accelerators=sorted(
            name
            for folder in Path("/proc/driver/nvidia/gpus").glob("*")
            if (name := _field(folder / "information", "Model"))
        ),
    )


def _field(path: Path, name: str) -> str:
    """The value of the first `name : value` line; empty when there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
