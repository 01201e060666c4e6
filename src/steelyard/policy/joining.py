"""Which waiting requests share one call of a model's own code: as many as make the call last little longer.

**Inputs** The cost that the proof measured, as a line over rows; each finished call: its requests, rows and bytes, how
many calls of the model it took, computing and wall seconds, and how many ran beside it.
**Parameters** A shared call may last `STRETCH` = 2 times what one row takes alone, or `FLOOR_S` = 2 ms, whichever is
more, and hold `MOST_REQUESTS` = 64. A model that computes for less than `COMPUTES` = half of a call waits for others,
and answers sooner side by side: its requests are not joined. Sharing that saves less than `PAYS` = a quarter of the
calls that it could is left off for the next `PAUSE` = 500 requests.
**Trade-offs** Only what waits is joined, so that nobody waits for company. Rows that cost much make small groups: their
calls are better spread over the lanes. How many rows a body holds is guessed from its size until it is decoded; the
worker, which decodes it, keeps to `most_rows` exactly.
**Failure modes** Nothing is joined before `LEARN` = 3 calls have shown whether the model computes. A request that makes
a shared call fail costs the others a second call each, until the pause.

`runtimes/workers.py` tells it every call; the replica's lanes ask it when a lane is free and requests wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STRETCH = 2.0
FLOOR_S = 0.002
MOST_REQUESTS = 64
MOST_ROWS = 4096
COMPUTES = 0.5
PAYS = 0.25
PAUSE = 500
LEARN = 3
_TRIED = 8  # shared calls, before they are judged
_SMOOTHING = 0.1
_MANY_RUN = 2  # of calls side by side that hold each other up, each computes this fraction of the time at most


@dataclass(frozen=True, slots=True)
class Ran:
    """One message to a worker. `rows` is 0 where the requests could not be joined; `running` counts itself."""

    requests: int
    calls: int
    rows: int
    body_bytes: int
    cpu_s: float
    wall_s: float
    running: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that could be joined. `left_s`: until its deadline."""

    body_bytes: int
    left_s: float | None = None


class Joining:
    """What is known of one model. `call_s` and `row_s` are what the proof measured."""

    def __init__(self, call_s: float, row_s: float) -> None:
        self.apart = ""  # why requests are never joined any more
        self._proven = (max(call_s, 0.0), max(row_s, 1e-9))
        self._points: dict[int, tuple[float, float]] = {}  # by size of call, in powers of two: rows and wall seconds
        self._line = self._proven
        self._row_bytes = 0.0
        self._alone = _Mean()  # the share of a call that the model computes
        self._beside = _Mean()  # the same where others ran in its process
        self._saved = _Mean()  # of the calls that sharing could have saved
        self._pause = 0

    def refuse(self, why: str) -> None:
        """Never again: a worker has found that a shared call may answer otherwise."""
        self.apart = self.apart or why

    def observe(self, ran: Ran) -> None:
        """Everything that a worker answered whole."""
        self._pause = max(0, self._pause - ran.requests)
        if not ran.rows or ran.wall_s <= 0:
            return
        share = ran.cpu_s / ran.wall_s
        if ran.running == 1:
            self._alone.add(min(1.0, share))
        else:
            self._beside.add(min(1.0, share * min(ran.running, _MANY_RUN)))
        row_bytes = ran.body_bytes / ran.rows
        self._row_bytes += (_SMOOTHING if self._row_bytes else 1.0) * (row_bytes - self._row_bytes)
        if ran.requests > 1:
            self._saved.add((ran.requests - ran.calls) / (ran.requests - 1))
            if self._saved.count >= _TRIED and self._saved.value < PAYS:
                self._pause, self._saved = PAUSE, _Mean()
        if ran.calls == 1:
            self._learn(ran.rows, ran.wall_s)

    @property
    def joins(self) -> bool:
        """Whether requests that wait are joined now."""
        return not self.apart and not self._pause and self._computes()

    @property
    def most_rows(self) -> int:
        """Of one call."""
        call_s, row_s = self._line
        left_s = max(FLOOR_S, STRETCH * (call_s + row_s)) - call_s
        return max(1, min(MOST_ROWS, int(left_s / row_s + 1e-6)))

    @property
    def most_requests(self) -> int:
        """Of one row each."""
        return min(MOST_REQUESTS, self.most_rows) if self.joins else 1

    def together(self, waiting: Sequence[Waiting]) -> int:
        """How many of them, from the first, are to share a call; at least 1."""
        if not self.joins:
            return 1
        call_s, row_s = self._line
        most_rows, rows, least_left_s = self.most_rows, 0.0, float("inf")
        for count, request in enumerate(waiting[:MOST_REQUESTS]):
            rows += max(1.0, request.body_bytes / self._row_bytes) if self._row_bytes else 1.0
            least_left_s = min(least_left_s, float("inf") if request.left_s is None else request.left_s)
            if count and (rows > most_rows or call_s + rows * row_s > least_left_s):
                return count
        return max(1, min(len(waiting), MOST_REQUESTS))

    def _computes(self) -> bool:
        mean = self._alone if self._alone.count >= LEARN else self._beside
        return mean.count >= LEARN and mean.value >= COMPUTES

    def _learn(self, rows: int, wall_s: float) -> None:
        place = rows.bit_length()
        known_rows, known_s = self._points.get(place, (float(rows), wall_s))
        point = (known_rows + _SMOOTHING * (rows - known_rows), known_s + _SMOOTHING * (wall_s - known_s))
        self._points[place] = point
        self._line = _fit(list(self._points.values()), self._proven)


class _Mean:
    """Smoothed, and of how many."""

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(_SMOOTHING, 1 / self.count) * (value - self.value)


def _fit(points: list[tuple[float, float]], proven: tuple[float, float]) -> tuple[float, float]:
    """Seconds of a call and of each row: the line with the least relative error, neither part below 0. Calls of one
    size say how slow the machine is; the proportion is then the proof's."""
    call_s, row_s = proven
    if len(points) == 1:
        rows, wall_s = points[0]
        scale = wall_s / (call_s + rows * row_s)
        return call_s * scale, row_s * scale
    square = cross = squares = ones = slopes = 0.0
    for rows, wall_s in points:
        weight, slope = 1 / wall_s, rows / wall_s
        square += weight * weight
        cross += weight * slope
        squares += slope * slope
        ones += weight
        slopes += slope
    determinant = square * squares - cross * cross
    if determinant <= 1e-12 * square * squares:
        return _fit(points[:1], proven)
    call_s = (ones * squares - slopes * cross) / determinant
    row_s = (slopes * square - ones * cross) / determinant
    if call_s < 0:
        return 0.0, slopes / squares
    if row_s <= 0:
        return ones / square, 1e-9
    return call_s, row_s
