"""Virtual time: seconds since a simulation began, moved only by its event queue.

Everything that would read a clock in a live process is given `now_s` here. Nothing in this room waits for real time.
"""

from __future__ import annotations


class VirtualClock:
    """Seconds since the start. It never goes back."""

    __slots__ = ("now_s",)

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def advance(self, to_s: float) -> None:
        """Raises ValueError for a time that has passed."""
        if to_s < self.now_s:
            raise ValueError(f"Time cannot go back from {self.now_s} s to {to_s} s.")
        self.now_s = to_s
