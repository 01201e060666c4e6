"""The reconcile loop: looks at what runs, plans for each endpoint, acts, and publishes what routers must know.

One per control. It wakes on changes and at least every half second. The API changes what is wanted in the store and
calls `wake`; it reads `boards`. A store that fails delays promotions, never the care for replicas.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from steelyard.contracts.replica import ReplicaSpec, ReplicaStatus
from steelyard.control import snapshots as snapshot_room
from steelyard.control.board import Board
from steelyard.control.costs import Costs
from steelyard.control.definitions import EntityDefinition
from steelyard.control.events import Events
from steelyard.control.exits import Exits
from steelyard.control.fleet import Fleet, Tracked
from steelyard.control.instruments import Instruments
from steelyard.control.offers import Offers
from steelyard.control.plan import after_death, plan
from steelyard.control.probes import Probes
from steelyard.control.records import EndpointRecord, Event, TokenRecord
from steelyard.control.snapshots import Serving, Snapshots, TaskOf, key_of, task_unknown
from steelyard.control.states import (
    Action,
    Attempts,
    Drain,
    FailUpdate,
    Forget,
    Kill,
    Memory,
    Phase,
    Promote,
    Start,
    Terminate,
)
from steelyard.control.store import Store
from steelyard.control.wanted import ReplicasOf, as_configured, desired, replica_spec
from steelyard.errors import SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate

TICK_S = 0.5
RELOAD_S = 5.0
STORE_PATIENCE_S = 2.0  # how long a round waits for the store before it goes on without
BOUND_LOGS_EVERY_S = 10.0
RESERVED_VERSIONS = 1_000


class Reconciler:
    """`clock` gives seconds that only grow, `wall_ms` the time of day."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        substrate: LocalSubstrate,
        snapshots: Snapshots,
        events: Events,
        instruments: Instruments,
        costs: Costs,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._store = store
        self._substrate = substrate
        self._snapshots = snapshots
        self._events = events
        self._instruments = instruments
        self._costs = costs
        self._clock = clock
        self._wall_ms = wall_ms
        self._log = get_logger()
        self._endpoints: dict[str, EndpointRecord] = {}
        self._tokens: list[TokenRecord] = []
        self._offers = Offers()
        self._memories: dict[str, Memory] = {}
        self._awake = asyncio.Event()
        self._stale = True
        self._loaded_s = -RELOAD_S
        self._logs_bounded_s = 0.0
        self._wake_at_s: float | None = None
        self._newly_ready: dict[str, ReplicaStatus] = {}
        self._probes: Probes | None = None
        self._exits = Exits(self._awake.set)
        self.fleet = Fleet()
        self.boards: dict[str, Board] = {}
        self.replicas_of: ReplicasOf = as_configured  # the autoscaler's answer, where there is one
        self.task_of: TaskOf = task_unknown
        self.on_ready: Callable[[str, str, float], None] | None = None  # endpoint id, entity, seconds since its start
        snapshots.on_applied = self._awake.set

    def endpoints(self) -> list[EndpointRecord] | None:
        """As the store held them when it was last read; None: it was not read yet."""
        return list(self._endpoints.values()) if self._loaded_s >= 0 else None

    def deployed(self) -> list[tuple[EndpointRecord, EntityDefinition, Serving]]:
        """Each served entity of which a replica is ready."""
        serving = self.fleet.serving()
        return [
            (endpoint, entity, serving[key])
            for endpoint in self._endpoints.values()
            if endpoint.active is not None and not endpoint.stopped
            for entity in endpoint.active.definition.entities
            if (key := key_of(endpoint, entity)) in serving
        ]

    def wake(self) -> None:
        """What is wanted has changed in the store."""
        self._stale = True
        self._awake.set()

    async def run(self) -> None:
        """Until cancelled. Replicas go on when it ends; see `stop_all`."""
        async with asyncio.TaskGroup() as group:
            self._probes = Probes(group, self._heard)
            try:
                while True:
                    self._awake.clear()
                    try:
                        again = await self._round()
                    except SteelyardError as error:
                        self._log.warning("round_failed", reason=error.message)
                        again = False
                    except Exception:  # a full disk, say: traffic goes on, and the next round may succeed
                        self._log.exception("round_failed")
                        again = False
                    if not again:
                        await self._rest()
            finally:
                self._probes.close()
                self._exits.close()

    async def stop_all(self) -> None:
        """Ends all replicas: asks, waits as long as each may drain, then kills. Call it after `run` has ended.

        They are put away, so that the next control does not take the ends that it finds for deaths.
        """
        deadline_s = self._clock() + self._settings.drain_timeout_s
        asked: set[str] = set()
        ended: set[str] = set()
        while True:
            found = await asyncio.to_thread(self._substrate.observe)
            left = [item for item in found if item.spec.id not in ended]
            if not left:
                return
            late = self._clock() >= deadline_s
            for item in left:
                if not item.alive:
                    ended.add(item.spec.id)
                    await self._put_away(item.spec)
                elif late:
                    await asyncio.to_thread(self._substrate.kill, item.spec.id)
                elif item.spec.id not in asked:
                    asked.add(item.spec.id)
                    await asyncio.to_thread(self._substrate.terminate, item.spec.id)
            await asyncio.sleep(0.05)

    async def _put_away(self, spec: ReplicaSpec) -> None:
        try:
            await asyncio.to_thread(self._substrate.retire, spec.id)
        except OSError as error:
            self._log.warning("replica_not_put_away", replica=spec.id, reason=str(error))
        self._say(spec, "replica_stopped", f"Replica {spec.id} has ended: the platform stops.")

    async def _rest(self) -> None:
        wait_s = TICK_S
        if self._wake_at_s is not None:
            wait_s = min(wait_s, max(0.0, self._wake_at_s - self._clock()))
        try:
            async with asyncio.timeout(wait_s):
                await self._awake.wait()
        except TimeoutError:
            pass

    async def _round(self) -> bool:
        """Looks, plans, acts, publishes. True when another round should follow at once."""
        started_s = self._clock()
        await self._reload()
        for adopted in self.fleet.update(await asyncio.to_thread(self._substrate.observe), self._clock()):
            self._log.info("replica_adopted", replica=adopted.spec.id, endpoint=adopted.spec.endpoint)
            self._attend(adopted)
        transitions: list[tuple[EndpointRecord, Promote | FailUpdate]] = []
        self._wake_at_s = None
        for endpoint_id in set(self._endpoints) | self.fleet.endpoint_ids() | set(self._memories):
            try:
                transitions += await self._tend(endpoint_id)
            except Exception:  # one endpoint's trouble must not stop the care for others
                self._log.exception("endpoint_round_failed", endpoint_id=endpoint_id)
        promotable = {endpoint.id: item.version for endpoint, item in transitions if isinstance(item, Promote)}
        self._offers.renew(promotable, self._clock())
        self._publish()
        again = await self._transit(transitions)
        await self._housekeeping()
        now_s, names = self._clock(), {endpoint.name for endpoint in self._endpoints.values()}
        self._instruments.note_round(now_s - started_s, self.fleet, self._snapshots.version, names, now_s)
        return again

    async def _reload(self) -> None:
        now_s = self._clock()
        if not self._stale and now_s - self._loaded_s < RELOAD_S:
            return
        self._stale = False
        try:
            async with asyncio.timeout(STORE_PATIENCE_S):
                endpoints = await self._store.all_endpoints()
                tokens = await self._store.tokens()
                if self._snapshots.needs_versions:
                    self._snapshots.extend(*await self._store.reserve_versions(RESERVED_VERSIONS))
        except (SteelyardError, TimeoutError) as error:
            self._stale = True
            self._instruments.store_failures.inc()
            self._log.warning("store_not_read", reason=str(error) or "it does not answer")
            if self._loaded_s < 0:
                raise SteelyardError("Nothing is known of the endpoints yet.") from error
            return
        self._loaded_s = now_s
        self._endpoints = {endpoint.id: endpoint for endpoint in endpoints}
        self._tokens = tokens

    async def _tend(self, endpoint_id: str) -> list[tuple[EndpointRecord, Promote | FailUpdate]]:
        """Plans for one endpoint and does what concerns processes; returns what concerns the store."""
        endpoint = self._endpoints.get(endpoint_id)
        now_s = self._clock()
        outcome = plan(
            desired(endpoint, self.replicas_of),
            self.fleet.of_endpoint(endpoint_id, self._snapshots.released),
            self._memories.get(endpoint_id, Memory()),
            start_timeout_s=self._settings.start_timeout_s,
            now_s=now_s,
        )
        if endpoint is None:
            self._memories.pop(endpoint_id, None)
            self.boards.pop(endpoint_id, None)
        else:
            self._memories[endpoint_id] = outcome.memory
            parts = ((endpoint.pending, outcome.pending), (endpoint.active, outcome.active))
            self.boards[endpoint_id] = Board({config.version: told for config, told in parts if config is not None})
        if outcome.wake_at_s is not None:
            self._wake_at_s = min(outcome.wake_at_s, self._wake_at_s or outcome.wake_at_s)
        transitions: list[tuple[EndpointRecord, Promote | FailUpdate]] = []
        for action in outcome.actions:
            if isinstance(action, Promote | FailUpdate):
                assert endpoint is not None
                transitions.append((endpoint, action))
            elif isinstance(action, Start):
                assert endpoint is not None
                await self._start(endpoint, action, now_s)
            else:
                await self._end(action, now_s)
        return transitions

    async def _start(self, endpoint: EndpointRecord, action: Start, now_s: float) -> None:
        spec = replica_spec(endpoint, action, self._settings, secrets.token_hex(4))
        try:
            pid = await asyncio.to_thread(self._substrate.start, spec)
        except OSError as error:
            memory = self._memories[endpoint.id]
            record = after_death(
                memory.attempts.get(action.entity.key, Attempts()),
                message=f"could not be started ({error.strerror or error})",
                hopeless=False,
                now_s=now_s,
            )
            self._memories[endpoint.id] = Memory(memory.pending_version, {**memory.attempts, action.entity.key: record})
            self._log.error("replica_not_started", endpoint=endpoint.name, reason=str(error))
            return
        self._instruments.starts.inc()
        tracked = self.fleet.started(spec, pid, now_s)
        self._attend(tracked)
        self._say(tracked.spec, "replica_started", f"Replica {spec.id} starts: {action.reason}.")

    async def _end(self, action: Action, now_s: float) -> None:
        assert isinstance(action, Drain | Terminate | Kill | Forget)
        tracked = self.fleet.get(action.replica_id)
        if tracked is None:
            return
        if isinstance(action, Drain):
            tracked.enter(Phase.DRAINING, now_s)
            self._say(tracked.spec, "replica_draining", f"Replica {action.replica_id} drains: {action.reason}.")
        elif isinstance(action, Terminate):
            tracked.enter(Phase.STOPPING, now_s)
            await asyncio.to_thread(self._substrate.terminate, action.replica_id)
            self._say(tracked.spec, "replica_stopping", f"Replica {action.replica_id} stops: {action.reason}.")
        elif isinstance(action, Kill):
            tracked.killed = True
            await asyncio.to_thread(self._substrate.kill, action.replica_id)
            self._say(tracked.spec, "replica_killed", f"Replica {action.replica_id} is killed: {action.reason}.")
        else:
            await asyncio.to_thread(self._substrate.retire, action.replica_id)
            self.fleet.forget(action.replica_id)
            self._exits.forget(action.replica_id)
            if self._probes is not None:
                self._probes.forget(action.replica_id)
            if action.expected:
                self._say(tracked.spec, "replica_stopped", f"Replica {action.replica_id} has ended.")
            else:
                self._instruments.deaths.inc()
                self._say(tracked.spec, "replica_died", f"Replica {action.replica_id} {action.reason}")

    async def _transit(self, transitions: list[tuple[EndpointRecord, Promote | FailUpdate]]) -> bool:
        """Writes promotions and failures down. When the store fails, the next round plans them again."""
        done = False
        try:
            async with asyncio.timeout(STORE_PATIENCE_S):
                for endpoint, action in transitions:
                    if isinstance(action, Promote):
                        if not self._offers.is_due(endpoint.id, self._snapshots.released, self._clock()):
                            continue
                        changed = await self._store.promote(endpoint.id, action.version, self._wall_ms())
                        kind, message = "update_succeeded", f"Configuration {action.version} serves: {action.reason}."
                    else:
                        changed = await self._store.fail_update(
                            endpoint.id, action.version, action.message, self._wall_ms()
                        )
                        kind, message = "update_failed", f"Configuration {action.version} failed. {action.message}"
                    done = True
                    self._stale = True
                    if changed:
                        self._log.info(kind, endpoint=endpoint.name, message=message)
                        self._events.record(Event(endpoint.id, self._wall_ms(), kind, message))
        except (SteelyardError, TimeoutError) as error:
            self._instruments.store_failures.inc()
            self._log.warning("transition_not_written", reason=str(error) or "the store does not answer")
        return done

    def _publish(self) -> None:
        now_ms = self._wall_ms()
        endpoints = self._offers.as_if_promoted(sorted(self._endpoints.values(), key=lambda item: item.name))
        content = snapshot_room.build(
            endpoints,
            self.fleet.serving(),
            {item.id: self.boards[item.id].of(item.active) for item in endpoints if item.id in self.boards},
            [token for token in self._tokens if token.valid_at(now_ms)],
            auth=self._settings.auth,
            cost_of=self._costs.of,
            task_of=self.task_of,
        )
        version = self._snapshots.publish(content)
        self._offers.published(version)
        self.fleet.mark_listed(content, version)

    async def _housekeeping(self) -> None:
        while self._newly_ready:
            await asyncio.to_thread(self._substrate.note_ready, *self._newly_ready.popitem())
        if self._clock() - self._logs_bounded_s >= BOUND_LOGS_EVERY_S:
            self._logs_bounded_s = self._clock()
            await asyncio.to_thread(self._substrate.bound_logs)

    def _attend(self, tracked: Tracked) -> None:
        if tracked.phase is Phase.DEAD:
            return
        if self._probes is not None:
            self._probes.watch(tracked.spec.id, tracked.spec.address)
        if tracked.pid is not None:
            self._exits.watch(tracked.spec.id, tracked.pid)

    def _heard(self, replica_id: str, status: ReplicaStatus) -> None:
        tracked = self.fleet.get(replica_id)
        before = tracked.phase if tracked is not None else None
        if not self.fleet.heard(replica_id, status, self._clock()):
            return
        if tracked is not None and tracked.phase is Phase.READY and before is not Phase.READY:
            self._newly_ready[replica_id] = status
            if self.on_ready is not None and tracked.started_s is not None:
                spec, took_s = tracked.spec, self._clock() - tracked.started_s
                self.on_ready(spec.endpoint_id, spec.served_entity, took_s)
            if status.reason:
                self._say(tracked.spec, "runtime_selected", status.reason)
            self._say(tracked.spec, "replica_ready", f"Replica {replica_id} is ready.")
        self._awake.set()

    def _say(self, spec: ReplicaSpec, kind: str, message: str) -> None:
        self._log.info(kind, endpoint=spec.endpoint, served_entity=spec.served_entity, replica=spec.id, message=message)
        self._events.record(Event(spec.endpoint_id, self._wall_ms(), kind, message, spec.served_entity, spec.id))
