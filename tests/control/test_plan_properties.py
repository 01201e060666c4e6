"""What the plan never does and always reaches, over random lives of an endpoint.

A small world carries out the plan's actions with its own delays and mishaps: replicas become ready, die, fail to load;
routers let go late; users update, stop and start. Time is virtual.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.control.plan import plan
from steelyard.control.states import (
    Config,
    Desired,
    Drain,
    Entity,
    FailUpdate,
    Forget,
    Kill,
    Memory,
    Phase,
    Promote,
    Replica,
    Start,
    Terminate,
)

KEYS = ["k0", "k1", "k2"]
START_TIMEOUT_S = 60.0


@dataclass
class World:
    desired: Desired = field(default_factory=Desired)
    replicas: dict[str, Replica] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    now_s: float = 0.0
    versions: int = 0
    names: int = 0

    def round(self) -> int:
        """Plans once and does what was planned; returns how many actions there were."""
        outcome = plan(
            self.desired, list(self.replicas.values()), self.memory, start_timeout_s=START_TIMEOUT_S, now_s=self.now_s
        )
        self.check(outcome.actions)
        self.memory = outcome.memory
        for action in outcome.actions:
            self.carry_out(action)
        return len(outcome.actions)

    def check(self, actions) -> None:
        active = self.desired.active if not self.desired.stopped else None
        stopped = {action.replica_id for action in actions if isinstance(action, Drain | Terminate | Kill)}
        for entity in active.entities if active else ():
            ready = {r.id for r in self.replicas.values() if r.key == entity.key and r.phase is Phase.READY}
            assert not ready or ready - stopped, "the last ready replica of an active entity was stopped"
        assert len(stopped) == len([a for a in actions if isinstance(a, Drain | Terminate | Kill)]), "told twice"
        for action in actions:
            if isinstance(action, Start):
                wanted = max(action.entity.wanted_concurrency, 1)
                same = [a for a in actions if isinstance(a, Start) and a.entity.key == action.entity.key]
                running = [
                    r for r in self.replicas.values()
                    if r.key == action.entity.key and r.phase in (Phase.STARTING, Phase.READY) and r.id not in stopped
                ]  # fmt: skip
                assert len(same) + len(running) <= wanted, "more replicas than wanted"
            if isinstance(action, Terminate):
                known = self.replicas[action.replica_id]
                late = known.phase is Phase.DRAINING and self.now_s - known.phase_since_s >= 10.0
                assert not known.served or late, "stopped under a router's hands"
            if isinstance(action, Promote):
                for entity in self.desired.pending.entities:
                    assert any(r.key == entity.key and r.phase is Phase.READY for r in self.replicas.values())

    def carry_out(self, action) -> None:
        if isinstance(action, Start):
            self.names += 1
            name = f"r{self.names}"
            self.replicas[name] = Replica(name, action.entity.key, Phase.STARTING, self.now_s)
        elif isinstance(action, Drain):
            self.enter(action.replica_id, Phase.DRAINING)
        elif isinstance(action, Terminate):
            self.enter(action.replica_id, Phase.STOPPING, served=False)
        elif isinstance(action, Kill):
            self.enter(action.replica_id, Phase.DEAD, killed=True)
        elif isinstance(action, Forget):
            del self.replicas[action.replica_id]
        elif isinstance(action, Promote):
            self.desired = Desired(self.desired.pending, None, False)
        elif isinstance(action, FailUpdate):
            self.desired = replace(self.desired, pending=None)

    def enter(self, name: str, phase: Phase, **more) -> None:
        old = self.replicas[name]
        self.replicas[name] = replace(old, phase=phase, phase_since_s=self.now_s, before=old.phase, **more)

    def become_ready(self, name: str) -> None:
        self.enter(name, Phase.READY, max_concurrency=2)

    def publish(self) -> None:
        """Ready replicas of the active configuration reach the routers."""
        keys = {entity.key for entity in self.desired.active.entities} if self.desired.active else set()
        for name, item in self.replicas.items():
            if item.phase is Phase.READY and item.key in keys and not self.desired.stopped:
                self.replicas[name] = replace(item, served=True)


class EndpointLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def pick(self, data, *phases: Phase) -> str | None:
        names = sorted(name for name, item in self.world.replicas.items() if item.phase in phases)
        return data.draw(st.sampled_from(names)) if names else None

    @initialize(keys=st.sets(st.sampled_from(KEYS), min_size=1), size=st.integers(1, 5))
    def create(self, keys, size):
        self.update(keys, size)

    @precondition(lambda self: self.world.desired.pending is None)
    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1), size=st.integers(1, 5))
    def update(self, keys, size):
        world = self.world
        world.versions += 1
        config = Config(world.versions, tuple(Entity(key, key, size) for key in sorted(keys)))
        world.desired = replace(world.desired, pending=config, stopped=False)

    @precondition(lambda self: self.world.desired.pending is None and self.world.desired.active is not None)
    @rule()
    def stop(self):
        self.world.desired = replace(self.world.desired, stopped=True)

    @rule()
    def a_round(self):
        self.world.round()
        self.world.publish()

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 15.0, 40.0, 70.0]))
    def time_passes(self, seconds):
        self.world.now_s += seconds

    @rule(data=st.data())
    def one_becomes_ready(self, data):
        name = self.pick(data, Phase.STARTING)
        if name:
            self.world.become_ready(name)

    @rule(data=st.data(), failure=st.sampled_from([None, "no weights"]))
    def one_dies(self, data, failure):
        name = self.pick(data, Phase.STARTING, Phase.READY, Phase.DRAINING, Phase.STOPPING)
        if name:
            self.world.enter(name, Phase.DEAD, failure=failure)

    @rule(data=st.data())
    def routers_let_go(self, data):
        name = self.pick(data, Phase.DRAINING)
        if name:
            self.world.replicas[name] = replace(self.world.replicas[name], served=False)

    @invariant()
    def replicas_do_not_pile_up(self):
        assert len(self.world.replicas) < 200

    def teardown(self) -> None:
        """Left in peace, everything settles: exactly what is wanted runs, and nothing more is to be done."""
        world = self.world
        for _ in range(200):
            world.round()
            world.publish()
            for name, item in list(world.replicas.items()):
                if item.phase is Phase.STARTING:
                    world.become_ready(name)
                elif item.phase is Phase.STOPPING:
                    world.enter(name, Phase.DEAD)
                elif item.phase is Phase.DRAINING:
                    world.replicas[name] = replace(item, served=False)
            world.now_s += 5.0
        assert world.desired.pending is None
        assert world.round() == 0
        active = world.desired.active if not world.desired.stopped else None
        running = sorted(item.key for item in world.replicas.values() if item.phase is Phase.READY)
        expected = sorted(
            entity.key
            for entity in (active.entities if active else ())
            for _ in range(max(1, -(-entity.wanted_concurrency // 2)))
        )
        assert running == expected
        assert len(world.replicas) == len(running)
        super().teardown()


TestEndpointLife = EndpointLife.TestCase
TestEndpointLife.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
