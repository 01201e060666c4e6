"""Carries out one run of the grid on the live replica: load, settle, and a window between two moments.

`runner.py` calls it. The moments are first tokens (or answers of rows): at these no prompt is half computed that was
not counted, and a window that begins and ends with one cuts nothing in two.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from steelyard.calibration.contention import Contention, worked_s
from steelyard.calibration.lanes import Lanes
from steelyard.calibration.progress import Progress
from steelyard.policy.calibration_grid import Result, Run

_STEP_S = 0.003  # in which all tokens of one step of an engine arrive
_EDGE_WAIT_S = 5.0  # for a first token, before any moment will do
_FAILURES = 5  # without one answer, and the rest of the run is spared


async def measure(run: Run, lanes: Lanes, progress: Progress, contention: Contention, *, generates: bool) -> Result:
    """Takes about `settle_s` and `window_s`. The result's seconds are those in which the replica worked."""
    began_s = time.monotonic()
    progress.begin(began_s)
    lanes.load(run.mix, run.concurrency)
    while progress.older() and not _hopeless(progress) and (left_s := began_s + run.settle_s - time.monotonic()) > 0:
        await _until(lanes.changed, left_s)
    start_s = await _edge(lanes, run.window_s, generates)
    before, spent = progress.totals(), contention.now()
    while not _hopeless(progress):
        length_s = time.monotonic() - start_s
        if length_s >= run.limit_s or (length_s >= run.window_s and progress.finished >= run.enough):
            break
        end_s = run.window_s if length_s < run.window_s else run.limit_s
        await _until(lanes.changed, end_s - length_s)
    stop_s = await _edge(lanes, run.window_s, generates)
    after, length_s = progress.totals(), stop_s - start_s
    return progress.result(before, after, worked_s(spent, contention.now(), length_s))


async def _edge(lanes: Lanes, window_s: float, generates: bool) -> float:
    lanes.spoke.clear()
    await _until(lanes.spoke, min(_EDGE_WAIT_S, window_s))
    moment_s = time.monotonic()
    if generates:
        await asyncio.sleep(_STEP_S)
    return moment_s


async def _until(event: asyncio.Event, at_most_s: float) -> None:
    event.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            await event.wait()


def _hopeless(progress: Progress) -> bool:
    return progress.finished == 0 and progress.failed >= _FAILURES
