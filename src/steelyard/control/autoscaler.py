"""Sets the number of replicas of each served entity that follows its load: looks each second, decides each five.

One task of control. It asks the routers what demand they see, lets `policy/horizontal.py` decide, and answers the
reconcile loop's question how many replicas there should be; starting and draining is that loop's. A surge, and the
first request at zero, are decided on at once. What a decision changes is an event, every decision is in the log, and
all that is known survives a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steelyard.control.costs import Costs
from steelyard.control.decision_log import DecisionLog
from steelyard.control.definitions import EntityDefinition
from steelyard.control.demand_reports import DemandReports, Reports, outstanding_mmu
from steelyard.control.events import Events
from steelyard.control.fleet import Fleet
from steelyard.control.records import EndpointRecord, Event
from steelyard.control.scaling_axes import Axis, Name, PolicyClock, keep, restore, state_text
from steelyard.control.scaling_limits import Machine, limits_of
from steelyard.control.snapshots import key_of
from steelyard.control.states import Phase
from steelyard.observe.logs import get_logger
from steelyard.observe.machine import available_memory_bytes, memory_limit_bytes, usable_cores
from steelyard.policy.demand_sum import Totals
from steelyard.policy.horizontal import DECIDE_EVERY_S, Decision, Horizontal, Limits
from steelyard.policy.scaling_log import Call, begin_line, decision_line
from steelyard.settings import Settings
from steelyard.substrate.processes import group_memory_bytes

SAMPLE_EVERY_S = 1.0
KEEP_EVERY_S = 10.0  # also after each change
MEASURE_MEMORY_EVERY_S = 30.0
STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class _Subject:
    """A served entity that follows its load, and its replicas now."""

    endpoint: EndpointRecord
    entity: EntityDefinition
    key: str
    concurrency: int | None  # requests that one of its replicas holds; None: none is ready
    lanes: int  # of these, how many it runs at once
    ready: int
    starting: int
    pids: tuple[int, ...]
    task: str | None

    @property
    def name(self) -> Name:
        return self.endpoint.id, self.entity.name

    @property
    def label(self) -> str:
        return f"{self.endpoint.name}/{self.entity.name}"


class Autoscaler:
    """`endpoints`: all that there are, None while nobody knows. `changed()` is called when another number is wanted."""

    def __init__(
        self,
        settings: Settings,
        *,
        fleet: Fleet,
        endpoints: Callable[[], Sequence[EndpointRecord] | None],
        changed: Callable[[], None],
        costs: Costs,
        events: Events,
        monotonic: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._fleet = fleet
        self._endpoints = endpoints
        self._changed = changed
        self._costs = costs
        self._events = events
        self._clock = PolicyClock(settings.autoscaling_speed, monotonic, wall_s)
        self._monotonic, self._wall_s = monotonic, wall_s
        self._idle_timeout_s = settings.scale_to_zero_after_s
        self._folder = settings.autoscaling_dir
        self._decisions = DecisionLog(settings.autoscaling_dir)
        self._routers = [settings.router_address(index) for index in range(settings.routers)]
        self._axes: dict[Name, Axis] = {}
        self._first_starts: dict[Name, float] = {}  # of entities that have no axis yet
        self._decide_at_s = 0.0
        self._kept_s = self._measured_s = -KEEP_EVERY_S - MEASURE_MEMORY_EVERY_S
        self._machine = Machine(usable_cores(), memory_limit_bytes(), available_memory_bytes())
        self._log = get_logger()

    def load(self) -> None:
        """Go on from what an earlier control knew. Blocks; to be called before the first round of reconciling."""
        self._axes = restore(self._folder / STATE_FILE, self._clock)

    def replicas_of(self, endpoint: EndpointRecord, entity: EntityDefinition) -> int | None:
        """How many there should be; None: nothing is known of its load, or it does not follow it.

        A new version under another name begins with its share of what serves now, within its own bounds.
        """
        if not entity.follows_load:
            return None
        axis = self._axes.get((endpoint.id, entity.name))
        if axis is not None:
            return axis.horizontal.replicas
        if endpoint.pending is None or endpoint.active is None or entity not in endpoint.pending.definition.entities:
            return None
        now = [self._axes.get((endpoint.id, item.name)) for item in endpoint.active.definition.entities]
        total = sum(axis.horizontal.replicas for axis in now if axis is not None)
        shares = {route.served_entity_name: route.traffic_percentage for route in endpoint.pending.definition.routes}
        concurrency = max((axis.concurrency for axis in now if axis is not None), default=1)
        least, most = (-(-entity.wanted_concurrency // concurrency), max(1, entity.most_concurrency // concurrency))
        return max(least, min(most, -(-total * shares.get(entity.name, 0) // 100))) if total else None

    def task_of(self, endpoint: EndpointRecord, entity: EntityDefinition) -> str | None:
        """What its replicas said that they are, also while there is none."""
        axis = self._axes.get((endpoint.id, entity.name))
        return None if axis is None else axis.task

    def note_ready(self, endpoint_id: str, served_entity: str, took_s: float) -> None:
        """A replica took so long from its start to its readiness."""
        axis = self._axes.get((endpoint_id, served_entity))
        took_s *= self._clock.speed
        if axis is not None:
            axis.note_start(took_s)
        else:
            self._first_starts[endpoint_id, served_entity] = took_s

    async def run(self) -> None:
        """Until cancelled."""
        reports = DemandReports(self._routers)
        try:
            while True:
                await asyncio.sleep(SAMPLE_EVERY_S / self._clock.speed)
                try:
                    await self._turn(reports)
                except Exception:  # whatever is wrong here, what runs goes on
                    self._log.exception("autoscaling_turn_failed")
        finally:
            reports.close()
            keep(self._folder / STATE_FILE, state_text(self._axes, self._clock(), self._wall_s()))

    async def _turn(self, reports: DemandReports) -> None:
        endpoints = self._endpoints()
        if endpoints is None:
            return
        subjects = self._subjects(endpoints)
        self._attend(subjects)
        known = {endpoint.id for endpoint in endpoints}
        self._first_starts = {name: took_s for name, took_s in self._first_starts.items() if name[0] in known}
        if not self._axes:
            return
        await self._measure(subjects)
        told = await reports.ask()
        self._fleet.note_load(outstanding_mmu(told))
        now_s = self._clock()
        is_due = now_s >= self._decide_at_s
        if is_due:
            self._decide_at_s = now_s + DECIDE_EVERY_S - SAMPLE_EVERY_S / 2
        lines: list[str] = []
        has_changed = False
        for subject in subjects:
            axis = self._axes.get(subject.name)
            if axis is None:
                continue
            calibrated = self._costs.concurrency_of(subject.endpoint.id, subject.entity)
            self._observe(subject, axis, calibrated, told, now_s)
            before, target = axis.horizontal.replicas, axis.target(calibrated)
            waits_at_zero = not before and bool(axis.unlogged and axis.unlogged[-1].demand)
            if is_due or waits_at_zero or axis.horizontal.urgent(now_s, target):
                decision, entry = self._decide(subject, axis, target, now_s)
                lines += entry
                if decision.replicas != before:
                    has_changed = True
                    self._tell(subject, before, decision)
        if has_changed:
            self._changed()
        await self._write(lines, has_changed)

    def _subjects(self, endpoints: Sequence[EndpointRecord]) -> list[_Subject]:
        found: list[_Subject] = []
        for endpoint in endpoints:
            if endpoint.active is None or endpoint.stopped:
                continue
            for entity in endpoint.active.definition.entities:
                if entity.follows_load:
                    found.append(self._subject(endpoint, entity))
        return found

    def _subject(self, endpoint: EndpointRecord, entity: EntityDefinition) -> _Subject:
        key = key_of(endpoint, entity)
        mine = [item for item in self._fleet if item.key == key]
        ready = [item for item in mine if item.phase is Phase.READY]
        told = [item.status for item in ready if item.status is not None]
        return _Subject(
            endpoint,
            entity,
            key,
            max([1, *(status.max_concurrency for status in told)]) if told else None,
            max([1, *(min(status.lanes or status.max_concurrency, status.max_concurrency) for status in told)]),
            len(ready),
            sum(1 for item in mine if item.phase is Phase.STARTING),
            tuple(item.pid for item in ready if item.pid is not None),
            next((status.task for status in told), None),
        )

    def _attend(self, subjects: Sequence[_Subject]) -> None:
        """An axis for each whose replicas are known, none for what is gone, and limits as they are now."""
        names = {subject.name for subject in subjects}
        for gone in self._axes.keys() - names:
            del self._axes[gone]
        for subject in subjects:
            axis = self._axes.get(subject.name)
            if axis is None:
                if subject.concurrency is None:
                    continue  # its first replica is not ready: until then it is as configured
                wanted = subject.ready + subject.starting
                limits = self._limits(subject, subject.concurrency, wanted, None)
                axis = Axis(Horizontal(limits, replicas=wanted), subject.key, subject.concurrency)
                self._axes[subject.name] = axis
                if subject.name in self._first_starts:
                    axis.note_start(self._first_starts.pop(subject.name))
            if subject.concurrency is not None:
                axis.task = subject.task
                axis.note_lanes(subject.lanes, self._clock())
                if axis.key != subject.key:  # another version under the same name
                    axis.key, axis.concurrency = subject.key, subject.concurrency
            limits = self._limits(subject, axis.concurrency, axis.horizontal.replicas, axis.replica_bytes)
            if limits != axis.horizontal.limits:
                axis.horizontal.limits = limits
                axis.is_logged = False

    def _limits(self, subject: _Subject, concurrency: int, wanted: int, replica_bytes: int | None) -> Limits:
        now = self._machine
        return limits_of(
            subject.entity,
            concurrency,
            Machine(now.cores, now.memory_bytes, now.available_bytes, replica_bytes),
            ready=subject.ready,
            starting=subject.starting,
            wanted=wanted,
            idle_timeout_s=self._idle_timeout_s,
        )

    async def _measure(self, subjects: Sequence[_Subject]) -> None:
        """How much memory there is, and how much a replica takes."""
        now_s = self._monotonic()
        if now_s - self._measured_s < MEASURE_MEMORY_EVERY_S:
            return
        self._measured_s = now_s
        available = await asyncio.to_thread(available_memory_bytes)
        self._machine = Machine(self._machine.cores, self._machine.memory_bytes, available)
        for subject in subjects:
            axis = self._axes.get(subject.name)
            if axis is not None and subject.pids:
                axis.replica_bytes = await asyncio.to_thread(group_memory_bytes, subject.pids[0]) or axis.replica_bytes

    def _observe(
        self, subject: _Subject, axis: Axis, calibrated: int | None, told: Sequence[Reports | None], now_s: float
    ) -> None:
        name = (subject.endpoint.name, subject.entity.name)
        # A router that answers and does not know the entity yet sees no demand of it.
        totals = [None if report is None else report.totals.get(name, Totals()) for report in told]
        speed = self._clock.speed
        scaled = [None if item is None else _at_speed(item, speed) for item in totals]
        at_once = subject.ready * axis.runs(calibrated)
        sample = axis.demand.take(scaled, now_s, subject.ready, subject.starting, at_once)
        axis.unlogged.append(sample)
        axis.horizontal.observe(sample)

    def _decide(self, subject: _Subject, axis: Axis, target: float, now_s: float) -> tuple[Decision, list[str]]:
        lines: list[str] = []
        label = subject.label
        if not axis.is_logged:  # what was observed since the last decision is in the state, and does no harm twice
            lines.append(begin_line(label, axis.horizontal))
            axis.is_logged = True
        call = Call(now_s, target, axis.readiness_s, tuple(axis.unlogged))
        decision = axis.horizontal.decide(call.now_s, call.target, call.readiness_s)
        axis.unlogged.clear()
        lines.append(decision_line(label, call, decision, self._wall_ms()))
        return decision, lines

    def _tell(self, subject: _Subject, before: int, decision: Decision) -> None:
        kind = "scaled_up" if decision.replicas > before else "scaled_down"
        if not decision.replicas:
            kind = "scaled_to_zero"
        message = f"{before} → {decision.replicas} replicas: {decision.reason} ({_figures(decision.numbers)})."
        entity = subject.entity.name
        self._log.info(kind, endpoint=subject.endpoint.name, served_entity=entity, message=message)
        self._events.record(Event(subject.endpoint.id, self._wall_ms(), kind, message, entity))

    async def _write(self, lines: list[str], has_changed: bool) -> None:
        is_full = bool(lines) and await asyncio.to_thread(self._decisions.append, lines)
        if is_full:
            await asyncio.to_thread(self._decisions.turn)
            for axis in self._axes.values():
                axis.is_logged = False
        if has_changed or self._monotonic() - self._kept_s >= KEEP_EVERY_S:
            self._kept_s = self._monotonic()
            text = state_text(self._axes, self._clock(), self._wall_s())
            await asyncio.to_thread(keep, self._folder / STATE_FILE, text)

    def _wall_ms(self) -> int:
        return int(self._wall_s() * 1000)


def _at_speed(totals: Totals, speed: float) -> Totals:
    """The same in the policy's seconds."""
    if speed == 1.0:
        return totals
    return Totals(
        totals.running,
        totals.running_mmu,
        totals.queued,
        totals.queued_mmu,
        totals.arrived,
        totals.settled,
        totals.settled_mmu,
        totals.busy_s * speed,
        totals.busy_mmu_s * speed,
    )


def _figures(numbers: dict[str, float]) -> str:
    """The figures of a decision, as people read them."""
    shown = ("need", "peak", "target", "offered", "running", "queued", "ready", "starting")
    return ", ".join(f"{name} {numbers[name]:.4g}" for name in shown if name in numbers)
