"""What waits together runs together: requests that arrived in one turn of the loop share one call of the model.

Owned by `native.py`; it belongs to the replica's loop. An idle replica adds no delay, since a batch is whatever has
come in by the end of the turn. Rows that the model refuses fail only their own request: the others run again alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Outputs, Records, join
from steelyard.runtimes.proof.measure import Cost

_JOIN_US: Final = 3.0  # joining and splitting cost about as much per request

Done = Callable[[Outputs | None, Exception | None], None]


class Batcher:
    """`budget_us` bounds one call, so that the loop is never held longer by a batch. Without `joins` each request is a
    call of its own, for the signature fixes how many rows a call has."""

    def __init__(self, predict: Callable[[Inputs], Outputs], cost: Cost, budget_us: float, *, joins: bool) -> None:
        self._predict = predict
        self._most_rows = max(1, int((budget_us - cost.call_us) / max(cost.row_us, 0.001)))
        self._joins = joins and cost.call_us >= _JOIN_US
        self._pending: list[tuple[Inputs, Done]] = []
        self._call_soon = asyncio.get_running_loop().call_soon

    def add(self, inputs: Inputs, done: Done) -> None:
        """`done(outputs, error)` is called in this turn of the loop or the next."""
        if not self._joins:
            self._alone(inputs, done)
            return
        self._pending.append((inputs, done))
        if len(self._pending) == 1:
            self._call_soon(self._run)

    def _run(self) -> None:
        pending, self._pending = self._pending, []
        start = 0
        while start < len(pending):
            rows = pending[start][0].rows
            stop = start + 1
            while stop < len(pending) and rows + pending[stop][0].rows <= self._most_rows:
                rows += pending[stop][0].rows
                stop += 1
            self._together(pending[start:stop])
            start = stop

    def _together(self, group: list[tuple[Inputs, Done]]) -> None:
        joined = join([inputs for inputs, _ in group]) if len(group) > 1 else None
        if joined is not None:
            try:
                parts = split(self._predict(joined), [inputs.rows for inputs, _ in group])
            except Exception:  # whosever rows they were, each is told of its own
                parts = None
            if parts is not None:
                for (_, done), part in zip(group, parts, strict=True):
                    done(part, None)
                return
        for inputs, done in group:
            self._alone(inputs, done)

    def _alone(self, inputs: Inputs, done: Done) -> None:
        try:
            outputs = self._predict(inputs)
        except Exception as error:
            done(None, error)
        else:
            done(outputs, None)


def split(outputs: Outputs, rows: list[int]) -> list[Outputs] | None:
    """The answers of each request, as views; None when they are not as many as the rows."""
    if isinstance(outputs, np.ndarray):
        return _slices(outputs, rows)
    arrays = outputs.arrays if isinstance(outputs, Records) else tuple(outputs.values())
    slices = [_slices(array, rows) for array in arrays]
    if any(part is None for part in slices):
        return None
    by_request = zip(*slices, strict=True)
    if isinstance(outputs, Records):
        return [Records(outputs.names, parts) for parts in by_request]
    return [dict(zip(outputs, parts, strict=True)) for parts in by_request]


def _slices(array: NDArray[Any], rows: list[int]) -> list[Any] | None:
    parts, start = [], 0
    for count in rows:
        parts.append(array[start : start + count])
        start += count
    return parts if start == len(array) else None
