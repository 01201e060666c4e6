"""What a call of a runtime costs, as a line over its rows, and which of several equal runtimes to take.

Measured once at a model version's first load, with rows that the model answers; the timer is given. The choice is a
plain comparison of measured costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from steelyard.protocols.inputs import Inputs, join
from steelyard.runtimes.proof.prove import FULL, Effort

SIZES = (1, 8, 64, 512)
_MAX_CALLS = 200  # per size; more would not find a better best
_CLOSE = 1.10  # one-row costs within this factor are as good as equal
_MUCH_CHEAPER = 0.5  # of the other's cost for many rows
_MANY_ROWS = 1000

TimerNs = Callable[[], int]
"""A monotonic clock in nanoseconds."""


class Cost(msgspec.Struct, frozen=True):
    """A call of n rows takes about `call_us + n × row_us` microseconds."""

    call_us: float
    row_us: float

    def of(self, rows: int) -> float:
        """Microseconds for a call of that many rows."""
        return self.call_us + rows * self.row_us

    def __str__(self) -> str:
        return f"{_duration(self.of(1))} for one row, {_duration(self.of(_MANY_ROWS))} for 1,000"


@dataclass(frozen=True, slots=True)
class Choice:
    """`reason` is the first half of the sentence in the endpoint's events: «chose onnx: 14 µs for one row, …»."""

    name: str
    cost: Cost
    reason: str


def measure(predict: Callable[[Inputs], object], inputs: Inputs, timer: TimerNs, *, budget_s: float = 0.5) -> Cost:
    """The best of several calls of 1, 8, 64 and 512 rows; larger ones are left out where the budget does not hold them.

    `inputs`: one or more rows that the model answers, repeated as needed. Takes about `budget_s`, more only when one
    call of one row does.
    """
    largest = _at_least(inputs, SIZES[-1])
    best_us: dict[int, float] = {}
    left_ns = budget_s * 1e9
    predict(largest.take(0, 1))  # the first call pays for what is loaded late
    for number, size in enumerate(SIZES):
        share_ns = left_ns / (len(SIZES) - number)
        known_us = max(best_us.values(), default=0.0)
        if known_us * 1e3 > share_ns or (number and _linear(best_us, size) * 1e3 > left_ns):
            break
        rows = largest.take(0, size)
        spent_ns, best_ns, calls = 0.0, float("inf"), 0
        while calls == 0 or (spent_ns < share_ns and calls < _MAX_CALLS):
            start_ns = timer()
            predict(rows)
            took_ns = timer() - start_ns
            spent_ns += max(took_ns, 1)
            best_ns = min(best_ns, took_ns)
            calls += 1
        best_us[size] = best_ns / 1e3
        left_ns -= spent_ns
    return fit(best_us)


def fit(best_us: dict[int, float]) -> Cost:
    """The line through microseconds by rows with the least relative error; neither part is below 0."""
    sizes = np.array(list(best_us), dtype=np.float64)
    times = np.maximum(np.array(list(best_us.values())), 1e-3)
    if len(sizes) == 1:
        return Cost(0.0, float(times[0] / sizes[0]))  # one size does not tell a call from its rows; assume the worst
    weights = 1 / times
    call_us, row_us = np.linalg.lstsq(np.stack([weights, sizes * weights], axis=1), np.ones(len(sizes)), rcond=None)[0]
    if call_us < 0:
        slope = sizes * weights
        return Cost(0.0, float(slope.sum() / (slope * slope).sum()))
    if row_us < 0:
        return Cost(float(weights.sum() / (weights * weights).sum()), 0.0)
    return Cost(float(call_us), float(row_us))


def choose(candidates: Sequence[tuple[str, Cost]]) -> Choice:
    """The cheapest for one row; one within 10 % of it instead if it takes less than half the time for 1,000 rows.

    The earlier of two equal ones. There must be at least one.
    """
    name, cost = min(candidates, key=lambda item: item[1].of(1))
    close = [item for item in candidates if item[1].of(1) <= cost.of(1) * _CLOSE]
    bulk_name, bulk_cost = min(close, key=lambda item: item[1].of(_MANY_ROWS))
    if bulk_cost.of(_MANY_ROWS) < cost.of(_MANY_ROWS) * _MUCH_CHEAPER:
        name, cost = bulk_name, bulk_cost
    return Choice(name, cost, f"chose {name}: {cost}")


def effort_within(reference: Cost, budget_s: float) -> Effort:
    """How much of the full proof the reference can answer in about that time; never less than 128 rows."""
    budget_us = budget_s * 1e6
    full_us = 50 * reference.of(FULL.rows // 50) + FULL.boundary_calls * reference.of(FULL.boundary_rows)
    if full_us <= budget_us:
        return FULL
    rows = int(budget_us / 2 / max(reference.of(1), 1e-3))
    boundary_rows = FULL.boundary_rows
    while boundary_rows > 32 and FULL.boundary_calls * reference.of(boundary_rows) > budget_us / 2:
        boundary_rows //= 2
    calls = int(budget_us / 2 / reference.of(boundary_rows))
    return Effort(max(128, min(FULL.rows, rows)), min(FULL.boundary_calls, calls), boundary_rows)


def _linear(best_us: dict[int, float], size: int) -> float:
    """The most that a call of that size can be expected to take."""
    known, took_us = next(reversed(best_us.items()))
    return took_us * size / known


def _at_least(inputs: Inputs, rows: int) -> Inputs:
    bare = Inputs(inputs.names, inputs.rows, inputs.matrix, inputs.parts, inputs.columnar)
    joined = join([bare] * -(-rows // inputs.rows))
    assert joined is not None  # copies of one Inputs are alike
    return joined


def _duration(us: float) -> str:
    for limit, unit, scale in ((1e3, "µs", 1.0), (1e6, "ms", 1e3)):
        if us < limit:
            return f"{us / scale:.2g} {unit}" if us / scale < 10 else f"{us / scale:.0f} {unit}"
    return f"{us / 1e6:.2g} s" if us < 1e7 else f"{us / 1e6:,.0f} s"
