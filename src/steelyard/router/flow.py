"""What passes through one served entity in this router, as totals that only grow: what autoscaling is told.

The dispatcher counts what arrives, an attempt's charge what begins and ends. Plain additions, since each request comes
by; nothing here decides, and who reads it (`admin.py`) makes the differences.
"""

from __future__ import annotations


class Flow:
    """`mmu` as charged when the attempt began."""

    __slots__ = ("arrived", "busy_mmu_s", "busy_s", "running", "running_mmu", "settled", "settled_mmu")

    def __init__(self) -> None:
        self.arrived = 0
        self.running = 0
        self.running_mmu = 0
        self.settled = 0
        self.settled_mmu = 0
        self.busy_s = 0.0
        self.busy_mmu_s = 0.0

    def begin(self, mmu: int) -> None:
        self.running += 1
        self.running_mmu += mmu

    def end(self, mmu: int, took_s: float, served: bool) -> None:
        """Once for each `begin`, with the same `mmu`. What was not served tells nothing of how long serving takes."""
        self.running -= 1
        self.running_mmu -= mmu
        if served:
            self.settled += 1
            self.settled_mmu += mmu
            self.busy_s += took_s
            self.busy_mmu_s += mmu * took_s
