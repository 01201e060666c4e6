"""Whether a cost model still holds: what it said of a replica's work against what the work turned out to cost.

**Inputs** Per window of time the MU estimated for what was done, and the MU that were settled for it; the error that
calibration found on mixes it had not seen.
**Parameters** A window counts with `LEAST_REQUESTS` = 30 and an estimate above nothing. The last `WINDOWS` = 6 that
count are judged together, once there are `ENOUGH` = 4. They have drifted when their typical error is beyond twice the
expected one and `BEYOND` = 15 %; they are fine again within `WITHIN` = 60 % of that bound; between, the last verdict
stands.
**Trade-offs** The median over windows ignores a spoilt one and needs half of the windows to see a change: with windows
of a minute a lasting error is known after three or four.
**Failure modes** Too little traffic never drifts: the verdict is then `too little data`, not `fine`. A machine that is
busy with something else looks like drift while it lasts. Errors that cancel within each window are not seen.

Control keeps one `Drift` per served version and hardware, and calibrates again when it turns to `drifted`. No clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

LEAST_REQUESTS: Final = 30
WINDOWS: Final = 6
ENOUGH: Final = 4
BEYOND: Final = 0.15
WITHIN: Final = 0.6
_UNKNOWN_ERROR = 0.10  # a model whose error nobody measured
_ONE_SIDED = 0.7  # of the typical error: so much of it lies on one side


class State(StrEnum):
    FINE = "fine"
    DRIFTED = "drifted"
    TOO_LITTLE_DATA = "too little data"


@dataclass(frozen=True, slots=True)
class Window:
    """Sums over the requests that were settled in it."""

    requests: int
    estimated_mmu: float
    settled_mmu: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`changed`: it differs from the one before. `bias` is by how much work cost more (+) or less (-) than estimated,
    typically; None without enough data."""

    state: State
    reason: str
    changed: bool
    bias: float | None


class Drift:
    """`expected_error` is the cost model's held-out median error; None: not known."""

    def __init__(self, expected_error: float | None) -> None:
        self._bound = math.log1p(max(BEYOND, 2 * (_UNKNOWN_ERROR if expected_error is None else expected_error)))
        self._logs: deque[float] = deque(maxlen=WINDOWS)
        self._state = State.TOO_LITTLE_DATA

    @property
    def state(self) -> State:
        return self._state

    def observe(self, window: Window) -> Verdict:
        """The verdict after one more window."""
        if window.requests < LEAST_REQUESTS or window.estimated_mmu <= 0 or window.settled_mmu <= 0:
            return self._repeat(window)
        self._logs.append(math.log(window.settled_mmu / window.estimated_mmu))
        if len(self._logs) < ENOUGH:
            reason = f"{len(self._logs)} of {ENOUGH} windows with enough requests were seen."
            return self._turn(State.TOO_LITTLE_DATA, reason, None)
        typical = median(map(abs, self._logs))
        bias = math.expm1(median(self._logs))
        state = self._judged(typical)
        return self._turn(state, _reason(state, self._logs, typical, bias, self._bound), bias)

    def _judged(self, typical: float) -> State:
        if typical > self._bound:
            return State.DRIFTED
        if typical <= WITHIN * self._bound or self._state is State.TOO_LITTLE_DATA:
            return State.FINE
        return self._state

    def _repeat(self, window: Window) -> Verdict:
        reason = f"A window of {window.requests} requests says too little; the verdict is that of the windows before."
        return Verdict(self._state, reason, False, None)

    def _turn(self, state: State, reason: str, bias: float | None) -> Verdict:
        changed, self._state = state is not self._state, state
        return Verdict(state, reason, changed, bias)


def _reason(state: State, logs: Sequence[float], typical: float, bias: float, bound: float) -> str:
    error, limit = math.expm1(typical), math.expm1(bound)
    if abs(math.log1p(bias)) >= _ONE_SIDED * typical:
        what = f"work costs {abs(bias):.0%} {'more' if bias > 0 else 'less'} than estimated"
    else:
        what = f"estimates miss by {error:.0%}, now above and now below"
    where = {
        State.DRIFTED: f"beyond the bound of {limit:.0%}"
        if typical > bound
        else f"not yet within {WITHIN * limit:.0%}",
        State.FINE: f"within the bound of {limit:.0%}",
        State.TOO_LITTLE_DATA: "",
    }[state]
    return f"In the median of {len(logs)} windows {what}, {where}."
