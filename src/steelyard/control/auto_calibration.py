"""Calibrates what has no cost on this machine yet, by itself, while nobody asks anything of the machine.

One task of control. It looks at the replicas' load while something wants a calibration, begins one when
`policy/calibration_schedule.py` says so, and ends it as soon as a user's request or a new replica comes. What was
learnt goes the way of every calibration: kept, and into the next snapshot. Events tell how it went.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from steelyard.contracts.cost import Calibration, CalibrationSpec
from steelyard.contracts.replica import LoadReport
from steelyard.control.calibrations import Calibrations, Job
from steelyard.control.costs import Costs
from steelyard.control.events import Events
from steelyard.control.reconcile import Reconciler
from steelyard.control.records import Event
from steelyard.control.snapshots import key_of
from steelyard.control.states import Phase
from steelyard.control.wanted import calibration_spec
from steelyard.errors import SteelyardError
from steelyard.observe.hardware import hardware
from steelyard.observe.logs import get_logger
from steelyard.policy.calibration_schedule import CalibrationSchedule, End, Seen
from steelyard.wire.client import Pool
from steelyard.wire.fetch import fetch

LOOK_EVERY_S = 1.0
LOOK_WHILE_RUNNING_S = 0.2  # a user's request shares the machine with a calibration for about so long
ANSWER_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class _Subject:
    key: str
    endpoint_id: str
    spec: CalibrationSpec


class AutoCalibration:
    """`run` works until cancelled. `budget_s` None: what the kind of model needs."""

    def __init__(
        self,
        reconciler: Reconciler,
        calibrations: Calibrations,
        costs: Costs,
        events: Events,
        *,
        kept: str,
        quiet_s: float,
        budget_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconciler = reconciler
        self._calibrations = calibrations
        self._costs = costs
        self._events = events
        self._kept = kept
        self._budget_s = budget_s
        self._clock = clock
        self._schedule: CalibrationSchedule[str] = CalibrationSchedule(quiet_s)
        self._running: _Subject | None = None
        self._put_off: set[str] = set()  # of which users were told already
        self._done: set[str] = set()  # by this loop
        self._pools: dict[str, Pool] = {}
        self._hardware = hardware().fingerprint
        self._log = get_logger()

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S if self._running is None else LOOK_WHILE_RUNNING_S)
                try:
                    await self._turn()
                except Exception:  # whatever is wrong here, models are served all the same
                    self._log.exception("auto_calibration_turn_failed")
        finally:
            for pool in self._pools.values():
                pool.close()

    async def _turn(self) -> None:
        wanted = {subject.key: subject for subject in self._wanted()}
        if self._running is None and not wanted:
            return
        await self._look()
        running = self._running
        if running is not None:
            self._follow(running)
            return
        if self._calibrations.busy:
            return  # somebody asked for one: it is looked at as somebody's request
        key = self._schedule.choose(list(wanted), self._clock())
        if key is not None:
            self._running = wanted[key]
            self._calibrations.begin(self._running.endpoint_id, self._running.spec)

    def _wanted(self) -> list[_Subject]:
        """What serves and has no cost on this machine."""
        found: list[_Subject] = []
        for endpoint, entity, serving in self._reconciler.deployed():
            key = key_of(endpoint, entity)
            if key not in self._done and not self._costs.is_known(endpoint.id, entity, self._hardware):
                replica = serving.replicas[0]
                tracked = self._reconciler.fleet.get(replica.id)
                spec = calibration_spec(endpoint, entity, replica, tracked.pid if tracked is not None else None)
                spec = msgspec.structs.replace(spec, kept=self._kept, background=True, budget_s=self._budget_s)
                found.append(_Subject(key, endpoint.id, spec))
        return found

    async def _look(self) -> None:
        tracked = [item for item in self._reconciler.fleet if item.phase is not Phase.DEAD]
        starting = any(item.phase is Phase.STARTING for item in tracked)
        addresses = {item.spec.id: item.spec.address for item in tracked if item.phase is not Phase.STARTING}
        for gone in self._pools.keys() - addresses.keys():
            self._pools.pop(gone).close()
        for name in addresses.keys() - self._pools.keys():
            self._pools[name] = Pool(addresses[name])
        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(_seen(self._pools[name])) for name in addresses}
        someone = self._calibrations.busy and self._running is None
        seen = {name: task.result() for name, task in asked.items()}
        self._schedule.look(seen, starting or someone, self._clock())

    def _follow(self, running: _Subject) -> None:
        if self._calibrations.busy:
            if self._schedule.is_disturbed:
                self._calibrations.stop(running.endpoint_id)
            return
        self._running = None
        job = self._calibrations.latest(running.endpoint_id, running.spec.served_entity)
        assert job is not None  # it was begun
        end = End.DONE
        if job.result is None:
            end = End.DISTURBED if self._schedule.is_disturbed or job.stopped else End.FAILED
        self._tell(running, end, job, self._schedule.ended(running.key, end, self._clock()))

    def _tell(self, running: _Subject, end: End, job: Job, again_s: float | None) -> None:
        again = " It is not tried again."
        if again_s is not None:
            again = f" It is tried again after {again_s / 60:.0f} min, once the machine is quiet."
        if job.result is not None:
            self._done.add(running.key)
            self._put_off.discard(running.key)
            self._say(running, "calibrated", described(job.result))
        elif end is End.FAILED:
            self._say(running, "calibration_failed", f"What requests cost was not found out. {job.message}{again}")
        elif running.key not in self._put_off:
            self._put_off.add(running.key)
            self._say(running, "calibration_put_off", f"A calibration gave way to users' requests.{again}")

    def _say(self, running: _Subject, kind: str, message: str) -> None:
        entity = running.spec.served_entity
        self._log.info(kind, endpoint=running.spec.endpoint, served_entity=entity, message=message)
        now_ms = time.time_ns() // 1_000_000
        self._events.record(Event(running.endpoint_id, now_ms, kind, message, entity))


def described(result: Calibration) -> str:
    """One sentence or two on what was learnt, for users."""
    costs = ", ".join(
        f"{value:.3g} per {name}" for name, value in result.coefficients.items() if value and name not in _FINE_PRINT
    )
    taken_over = next((note for note in result.notes if note.startswith("Measured on ")), "")
    error = result.held_out_median_error
    sure = "" if error is None else f" On mixes that it had not seen it was off by {error:.0%}, typically."
    return f"What requests cost is known, in model units: {costs}.{sure} {taken_over}".rstrip()


_FINE_PRINT = {"attention", "context"}  # per pair of tokens: too small to mean anything to a reader


async def _seen(pool: Pool) -> Seen | None:
    try:
        reply = await fetch(pool, "GET", b"/load", timeout_s=ANSWER_TIMEOUT_S)
        report = msgspec.json.decode(reply.body, type=LoadReport)
    except (SteelyardError, msgspec.MsgspecError):
        return None
    if report.user_requests_total is None or report.user_in_flight is None:
        return None  # of an earlier version: it cannot tell users' requests from ours
    return Seen(report.user_requests_total, report.user_in_flight)
