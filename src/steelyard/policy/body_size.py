"""How many rows, or tokens, a body holds, by its bytes alone: bytes = start + slope × number.

**Inputs** Bytes and the true number, of each request that succeeded.
**Parameters** `first_bytes`: bytes of one row or token until something was learnt. The last `MEMORY` = 200 requests
count, fading. `STEP` = 5 %: the line in use is replaced when the learnt one differs by more, so that equal requests get
equal estimates for a while and what was derived from one may be kept (`version`).
**Trade-offs** A straight line through all sizes: names of columns and the like are its start, rows its slope. Where all
bodies are alike nothing is known but their ratio, which is then exact for them.
**Failure modes** Rows of very different widths, or text in another script, are off by that much; what is reported when
a request ends corrects its charge. At least one row or token is estimated.

One per served entity, owned by `router/weigh.py`.
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = 200.0
STEP: Final = 0.05
_LEAST_SLOPE: Final = 0.05  # bytes


class BodySize:
    """`version` changes with the line in use."""

    __slots__ = ("_bytes", "_count", "_counted", "_in_both", "_in_count", "_slope", "_start", "version")

    def __init__(self, first_bytes: float) -> None:
        self._start = 0.0
        self._slope = first_bytes
        self.version = 0
        self._count = 0.0  # requests, and the fading means of what they had
        self._bytes = 0.0
        self._counted = 0.0
        self._in_count = 0.0  # of the square of the number,
        self._in_both = 0.0  # and of number × bytes

    def estimate(self, body_bytes: float) -> float:
        return max(1.0, (body_bytes - self._start) / self._slope)

    def learn(self, body_bytes: float, number: float) -> None:
        """A body of `body_bytes` held so many. Nothing is learnt from an empty one."""
        if number <= 0 or body_bytes <= 0:
            return
        self._count = min(self._count + 1.0, MEMORY)
        share = 1.0 / self._count
        self._bytes += share * (body_bytes - self._bytes)
        self._counted += share * (number - self._counted)
        self._in_count += share * (number * number - self._in_count)
        self._in_both += share * (number * body_bytes - self._in_both)
        start, slope = self._line()
        ours, theirs = start + slope * self._counted, self._start + self._slope * self._counted
        if abs(ours - theirs) > STEP * theirs or abs(slope - self._slope) > STEP * self._slope:
            self._start, self._slope = start, slope
            self.version += 1

    def _line(self) -> tuple[float, float]:
        """Least squares; through nothing where the numbers hardly differ, or a line would fall or begin below zero."""
        mean = self._counted
        spread = self._in_count - mean * mean
        ratio = max(_LEAST_SLOPE, self._bytes / mean)
        if spread <= 1e-3 * mean * mean:
            return 0.0, ratio
        slope = (self._in_both - mean * self._bytes) / spread
        start = self._bytes - slope * mean
        if slope < _LEAST_SLOPE or start < 0:
            return 0.0, ratio
        return start, slope
