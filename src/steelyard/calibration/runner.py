"""A whole calibration: asks the replica what it is, loads it as the grid says, fits, and makes the result.

`__main__.py` calls `calibrate`. Raises SteelyardError with one sentence when there can be no result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from steelyard.calibration.contention import Contention
from steelyard.calibration.lanes import Lanes
from steelyard.calibration.measure import measure
from steelyard.calibration.progress import Progress
from steelyard.calibration.reuse import find, model_hash
from steelyard.calibration.subject import Subject, get_to_know, load_of
from steelyard.contracts.cost import Calibration, CalibrationSpec, LatencyTarget, MixMeasured
from steelyard.contracts.replica import ReplicaStatus
from steelyard.errors import ModelFailed
from steelyard.observe.hardware import hardware
from steelyard.policy.calibration_grid import CalibrationGrid, Measured, Outcome, Run, Target
from steelyard.policy.cost_fit import Fit, evaluate, fit, predicted_s
from steelyard.policy.units import TERMS, LinearCost
from steelyard.wire.client import Pool

GENERATING_BUDGET_S = 420.0
ROWS_BUDGET_S = 30.0
_BUSY_CLIENT = 0.8  # of a core
_OTHERS = 0.02  # of all answers

Say = Callable[[int, int, str], None]  # windows done, about how many are left, what comes now


async def calibrate(spec: CalibrationSpec, say: Say) -> Calibration:
    """Takes as long as the budget of `spec` allows, at most; nearly no time where an earlier result may be taken."""
    began_s, created_ms = time.monotonic(), time.time_ns() // 1_000_000
    pool = Pool(spec.address)
    try:
        say(0, 1, "getting to know the model")
        subject = await get_to_know(pool, spec)
        hashed = await asyncio.to_thread(model_hash, spec)
        if (earlier := await asyncio.to_thread(find, spec, hashed, subject.status.runtime)) is not None:
            return earlier
        limits = subject.limits
        budget_s = spec.budget_s or (GENERATING_BUDGET_S if limits.generates else ROWS_BUDGET_S)
        grid = CalibrationGrid(limits, budget_s=budget_s, target=_target(spec.target), seed=spec.seed)
        before = await load_of(pool)
        sent, busy = await _run(grid, spec, subject, say)
        now = await load_of(pool)
    finally:
        pool.close()
    outcome = grid.outcome()
    if outcome.failure is not None:
        raise ModelFailed(outcome.failure)
    if not outcome.grid:
        raise ModelFailed("No window of the calibration could be used; the replica refused all mixes.")
    say(len(outcome.grid) + len(outcome.held_out), 0, "fitting the cost")
    found = await asyncio.to_thread(fit, [item.observation for item in outcome.grid], seed=spec.seed)
    notes = [*outcome.notes, *found.notes]
    if busy > _BUSY_CLIENT:
        notes.append(f"The load generator used {busy:.0%} of a core; requests may be cheaper than they look.")
    if (strangers := (now.user_requests_total or 0) - (before.user_requests_total or 0)) > _OTHERS * sent:
        notes.append(f"{strangers} requests of others ran meanwhile; costs look higher than they are.")
    took_s = time.monotonic() - began_s
    result = _result(spec, subject.status, outcome, found, notes=notes, created_ms=created_ms, took_s=took_s)
    return msgspec.structs.replace(result, model_hash=hashed)


async def _run(grid: CalibrationGrid, spec: CalibrationSpec, subject: Subject, say: Say) -> tuple[int, float]:
    """Until the grid has seen enough. Returns the requests sent and the share of a core that this cost us."""
    progress = Progress()
    lanes = Lanes(spec.address, subject.bodies, progress, spec.seed)
    contention = Contention(spec.pid)
    began_s, cpu_s, done = time.monotonic(), time.process_time(), 0
    try:
        while (run := grid.next()) is not None:
            say(done, grid.runs_left, _doing(run))
            result = await measure(run, lanes, progress, contention, generates=subject.limits.generates)
            done += 1
            grid.observe(result, time.monotonic() - began_s)
    finally:
        lanes.close()
    elapsed_s = max(time.monotonic() - began_s, 1e-9)
    return progress.finished_total + progress.given_up_total, (time.process_time() - cpu_s) / elapsed_s


def _doing(run: Run) -> str:
    return f"{run.mix.name}, {run.concurrency} at a time" if run.concurrency > 1 else f"{run.mix.name}, alone"


def _target(given: LatencyTarget | None) -> Target | None:
    return None if given is None else Target(given.first_token_s, given.per_token_s, given.whole_s)


def _result(
    spec: CalibrationSpec,
    status: ReplicaStatus,
    outcome: Outcome,
    found: Fit,
    *,
    notes: list[str],
    created_ms: int,
    took_s: float,
) -> Calibration:
    errors = evaluate(found.cost, [item.observation for item in outcome.held_out])
    sizes = {
        "input_tokens": outcome.sizes.input_tokens,
        "output_tokens": outcome.sizes.output_tokens,
        "rows": outcome.sizes.rows,
    }
    return Calibration(
        endpoint=spec.endpoint,
        served_entity=spec.served_entity,
        model_uri=spec.model_uri,
        model_version=spec.model_version,
        runtime=status.runtime,
        hardware=hardware(),
        created_ms=created_ms,
        took_s=took_s,
        complete=outcome.complete,
        concurrency=outcome.concurrency,
        target=LatencyTarget(
            first_token_s=outcome.target.first_token_s,
            per_token_s=outcome.target.per_token_s,
            whole_s=outcome.target.whole_s,
        ),
        coefficients={term.value: value for term, value in found.cost.coefficients.items()},
        held_out_median_error=None if errors is None else errors.median,
        held_out_p95_error=None if errors is None else errors.p95,
        cross_validated_median_error=None if found.cross_validated is None else found.cross_validated.median,
        largest={name: size for name, size in sizes.items() if size},
        notes=notes,
        windows=[
            *(window_of(item, found.cost, held_out=False) for item in outcome.grid),
            *(window_of(item, found.cost, held_out=True) for item in outcome.held_out),
        ],
    )


def window_of(item: Measured, cost: LinearCost, *, held_out: bool) -> MixMeasured:
    observation = item.observation
    return MixMeasured(
        mix=observation.mix,
        concurrency=item.concurrency,
        held_out=held_out,
        in_target=item.in_target,
        totals={term.value: total for term, total in zip(TERMS, observation.totals, strict=True) if total},
        seconds=observation.seconds,
        predicted_s=predicted_s(cost, observation),
    )
