"""What to do next for one endpoint: from what is wanted and what runs, to actions with their reasons.

Called by the reconcile loop each round; pure, so that tests run the very lines that the platform does. It never acts:
an action that fails is simply planned again in the next round.

Rules that hold whatever happens:
- A pending configuration starts beside the active one and takes over only when all its replicas are ready.
- Entities with the same key in both share replicas.
- A replica that routers may know is stopped only after they have let go of it.
- The first replica of an entity goes ahead alone: only when it is ready is its concurrency known, and a model that
  cannot load fails once, not many times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steelyard.control.states import (
    Action,
    Attempts,
    Config,
    Deployment,
    Desired,
    Drain,
    Entity,
    EntityStatus,
    FailUpdate,
    Forget,
    Kill,
    Memory,
    Phase,
    Plan,
    Promote,
    Replica,
    Start,
    Terminate,
)

BACKOFF_FIRST_S = 0.2
BACKOFF_LIMIT_S = 30.0
HEALTHY_AFTER_S = 30.0  # without a death and complete: earlier deaths are forgiven
UPDATE_RETRIES = 3  # deaths without a stated reason that an update survives
HOPELESS_AFTER = 3  # deaths in a row after which requests are no longer held for an entity
STARTS_AT_ONCE = 4  # of one entity: loading models is heavy, and all of them at once would starve what serves
RELEASE_LIMIT_S = 10.0  # a router that has not let go of a replica by then is taken for gone
KILL_GRACE_S = 2.0  # beyond the replica's own drain timeout
_NONE = Config(0, ())


def plan(
    desired: Desired, replicas: Sequence[Replica], memory: Memory, *, start_timeout_s: float, now_s: float
) -> Plan:
    """One round for one endpoint."""
    return _Round(desired, replicas, memory, now_s).run(start_timeout_s)


def after_death(attempts: Attempts, *, message: str, hopeless: bool, now_s: float) -> Attempts:
    """One more death: the next start waits twice as long, from BACKOFF_FIRST_S to BACKOFF_LIMIT_S."""
    wait_s = min(BACKOFF_LIMIT_S, BACKOFF_FIRST_S * 2 ** min(attempts.deaths, 16))
    return Attempts(
        deaths=attempts.deaths + 1,
        not_before_s=now_s + wait_s,
        last_death_s=now_s,
        hopeless=hopeless or attempts.deaths + 1 >= HOPELESS_AFTER,
        message=message,
    )


class _Round:
    """The working values of one call of `plan`; lives no longer than it."""

    def __init__(self, desired: Desired, replicas: Sequence[Replica], memory: Memory, now_s: float) -> None:
        self.now_s = now_s
        self.replicas = replicas
        self.current = list(replicas)  # those that still count
        self.active = None if desired.stopped else desired.active
        self.pending = desired.pending
        self.actions: list[Action] = []
        self.update_failure: str | None = None
        self.pending_version = desired.pending.version if desired.pending else None
        self.attempts = dict(memory.attempts)
        if desired.pending is not None and self.pending_version != memory.pending_version:
            # A new update starts with a clean record: its user may have mended what was broken.
            for entity in desired.pending.entities:
                self.attempts.pop(entity.key, None)
        self.entities = _entities(self.active, self.pending)
        self.wanted: dict[str, int] = {}

    def run(self, start_timeout_s: float) -> Plan:
        self._count_deaths()
        self._give_up_late_starters(start_timeout_s)
        self._give_up_after_retries()
        if self.pending is not None and self.update_failure is not None:
            self.actions.append(FailUpdate(self.pending.version, self.update_failure))
            self.pending = None
            self.entities = _entities(self.active)
        self.wanted = {key: self._wanted_count(entity) for key, entity in self.entities.items()}
        self._forgive()
        self._stop_unwanted()
        self._start_missing()
        self._carry_on_stopping()
        if self.pending is not None and all(self._is_complete(item.key) for item in self.pending.entities):
            self.actions.append(Promote(self.pending.version, "all its replicas are ready"))
        waits = [self.attempts[key].not_before_s for key in self.entities if key in self.attempts]
        return Plan(
            actions=tuple(self.actions),
            memory=Memory(self.pending_version, self.attempts),
            active=self._statuses(self.active, updating=False),
            pending=self._statuses(self.pending, updating=True),
            wake_at_s=min((at for at in waits if at > self.now_s), default=None),
        )

    def _of(self, key: str, *phases: Phase) -> list[Replica]:
        return [item for item in self.current if item.key == key and item.phase in phases]

    def _is_new(self, key: str) -> bool:
        """Of the pending configuration alone: not before one replica of it was ready is it proven to work."""
        return self.pending is not None and not any(item.key == key for item in (self.active or _NONE).entities)

    def _is_complete(self, key: str) -> bool:
        return len(self._of(key, Phase.READY)) >= self.wanted[key]

    def _wanted_count(self, entity: Entity) -> int:
        found = [item.max_concurrency for item in self.current if item.key == entity.key]
        known = [value for value in found if value is not None]
        if entity.replicas is not None and (known or not self._is_new(entity.key)):
            return max(entity.replicas, 1 if self._is_new(entity.key) else 0)
        return max(1, math.ceil(entity.wanted_concurrency / max(1, *known))) if known else 1

    def _count_deaths(self) -> None:
        """One per entity and round: what kills all replicas at once is one mishap."""
        counted: set[str] = set()
        for item in self.replicas:
            if item.phase is not Phase.DEAD:
                continue
            self.current.remove(item)
            expected = item.before in (Phase.DRAINING, Phase.STOPPING) or item.key not in self.entities
            message = item.failure or item.death
            how = "ended as told" if expected else f"could not start: {item.failure}" if item.failure else item.death
            self.actions.append(Forget(item.id, how, expected))
            if expected or item.key in counted:
                continue
            counted.add(item.key)
            self._record_death(item.key, message, hopeless=item.failure is not None)
            if item.failure is not None:
                self._fail_update(item.key, message)

    def _give_up_late_starters(self, start_timeout_s: float) -> None:
        for item in list(self.current):
            waited_s = self.now_s - item.phase_since_s
            if item.phase is not Phase.STARTING or item.key not in self.entities or waited_s < start_timeout_s:
                continue
            self.current.remove(item)
            message = f"not ready within {start_timeout_s:g} s" + (f" (last seen {item.detail})" if item.detail else "")
            self.actions.append(Terminate(item.id, message))
            self._record_death(item.key, message, hopeless=True)
            self._fail_update(item.key, message)

    def _give_up_after_retries(self) -> None:
        """Also counts starts that the substrate refused, which leave no dead replica behind."""
        for entity in self.pending.entities if self.pending else ():
            record = self.attempts.get(entity.key)
            if record is not None and record.deaths > UPDATE_RETRIES:
                self._fail_update(entity.key, record.message)

    def _record_death(self, key: str, message: str, *, hopeless: bool) -> None:
        before = self.attempts.get(key, Attempts())
        self.attempts[key] = after_death(before, message=message, hopeless=hopeless, now_s=self.now_s)

    def _fail_update(self, key: str, message: str) -> None:
        """The update in progress fails, if this entity is part of it. The first reason is the one told."""
        if self.update_failure is None and self.pending and any(item.key == key for item in self.pending.entities):
            self.update_failure = f"{self.entities[key].name}: {message}"

    def _forgive(self) -> None:
        for key, record in list(self.attempts.items()):
            healthy = (
                key in self.wanted and self._is_complete(key) and self.now_s - record.last_death_s >= HEALTHY_AFTER_S
            )
            if key not in self.wanted or healthy:
                del self.attempts[key]

    def _stop_unwanted(self) -> None:
        for item in self.current:
            if item.phase in (Phase.STARTING, Phase.READY) and item.key not in self.wanted:
                self._stop(item, "its configuration is no longer wanted")
        if self.pending is not None:
            return  # the old configuration keeps all it has until the new one stands
        for key, count in self.wanted.items():
            mine = self._of(key, Phase.STARTING, Phase.READY)
            if not self._of(key, Phase.READY):
                continue
            # Starting ones go first, so that as many ready ones as wanted stay; then who has least to finish, the
            # youngest first.
            mine.sort(key=lambda item: (item.phase is Phase.READY, item.outstanding_mmu, -item.phase_since_s, item.id))
            for item in mine[: max(0, len(mine) - count)]:
                self._stop(item, f"{count} of {len(mine)} replicas are enough")

    def _stop(self, item: Replica, reason: str) -> None:
        self.actions.append(Drain(item.id, reason) if item.served else Terminate(item.id, reason))

    def _start_missing(self) -> None:
        for key, entity in self.entities.items():
            record = self.attempts.get(key, Attempts())
            starting = len(self._of(key, Phase.STARTING))
            missing = self.wanted[key] - starting - len(self._of(key, Phase.READY))
            missing = min(missing, STARTS_AT_ONCE - starting)
            if missing <= 0 or self.now_s < record.not_before_s:
                continue
            in_active = self.active is not None and any(item.key == key for item in self.active.entities)
            config = self.active if in_active else self.pending
            assert config is not None
            reason = f"configuration {config.version}" + (f", after {record.deaths} deaths" if record.deaths else "")
            self.actions += [Start(entity, config.version, reason)] * missing

    def _carry_on_stopping(self) -> None:
        for item in self.current:
            waited_s = self.now_s - item.phase_since_s
            if item.phase is Phase.DRAINING and not item.served:
                self.actions.append(Terminate(item.id, "no router sends to it any more"))
            elif item.phase is Phase.DRAINING and waited_s >= RELEASE_LIMIT_S:
                self.actions.append(Terminate(item.id, f"a router did not let go of it within {RELEASE_LIMIT_S:g} s"))
            elif item.phase is Phase.STOPPING and not item.killed and waited_s >= item.drain_timeout_s + KILL_GRACE_S:
                self.actions.append(Kill(item.id, f"it did not end within {item.drain_timeout_s:g} s"))

    def _statuses(self, config: Config | None, *, updating: bool) -> Mapping[str, EntityStatus]:
        return {entity.name: self._status(entity.key, updating) for entity in (config.entities if config else ())}

    def _status(self, key: str, updating: bool) -> EntityStatus:
        ready, count = len(self._of(key, Phase.READY)), self.wanted[key]
        record = self.attempts.get(key, Attempts())
        detail = next((item.detail for item in self._of(key, Phase.STARTING) if item.detail), "")
        if not count and not ready:
            return EntityStatus(Deployment.READY, "Scaled to zero: the next request starts a replica.", ready, count)
        if ready:
            message = "" if ready >= count else f"{ready} of {count} replicas are ready."
            return EntityStatus(Deployment.READY, message, ready, count)
        if updating:
            message = detail or (f"Trying again: {record.message}" if record.deaths else "Starting.")
            return EntityStatus(Deployment.CREATING, message, ready, count)
        if record.hopeless:
            return EntityStatus(Deployment.FAILED, record.message, ready, count)
        return EntityStatus(Deployment.RECOVERING, detail or record.message or "Starting.", ready, count)


def _entities(*configs: Config | None) -> dict[str, Entity]:
    """By key; where both configurations hold one, the larger demand counts."""
    found: dict[str, Entity] = {}
    for config in configs:
        for entity in config.entities if config else ():
            other = found.get(entity.key)
            if other is None or entity.wanted_concurrency > other.wanted_concurrency:
                found[entity.key] = entity
    return found
