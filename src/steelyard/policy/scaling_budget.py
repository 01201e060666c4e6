"""What a day may cost in replica-hours, as a bucket that fills evenly and empties with each replica that runs.

The horizontal axis owns one. A spent budget bounds growth, it never ends service: what the budget sustains all day may
always run. It stays spent until a tenth of a day's hours is there again, so that the bound does not come and go.
"""

from __future__ import annotations

from collections.abc import Mapping

DAY_H = 24.0
HOUR_S = 3600.0
ENOUGH = 0.1


class Budget:
    """`hours_per_day` None: no budget, never spent."""

    __slots__ = ("_at_s", "_hours", "_left", "_spent")

    def __init__(self, hours_per_day: float | None) -> None:
        self._hours = hours_per_day
        self._left = hours_per_day or 0.0
        self._at_s: float | None = None
        self._spent = False

    @property
    def sustained(self) -> int:
        """Replicas that could run all day."""
        return int((self._hours or 0.0) / DAY_H)

    def spend(self, replicas: int, now_s: float) -> bool:
        """So many have run since the last call. Whether the budget is spent."""
        if self._hours is None:
            return False
        past_h = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s) / HOUR_S
        self._at_s = now_s
        self._left = min(self._hours, self._left + past_h * (self._hours / DAY_H - replicas))
        if self._left <= 0:
            self._left, self._spent = max(self._left, -ENOUGH * self._hours), True
        elif self._left >= ENOUGH * self._hours:
            self._spent = False
        return self._spent

    def state(self) -> dict[str, object]:
        return {"left": self._left, "at_s": self._at_s, "spent": self._spent}

    def restore(self, state: Mapping[str, object]) -> None:
        left, at_s = state["left"], state["at_s"]
        if isinstance(left, int | float):
            self._left = float(left) if self._hours is None else min(self._hours, float(left))
        self._at_s = float(at_s) if isinstance(at_s, int | float) else None
        self._spent = bool(state["spent"])
