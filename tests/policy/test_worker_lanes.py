"""How many workers and threads a model gets: a model of models on a virtual clock, and the rules one by one."""

import heapq
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.worker_lanes import MOST_PLACES, Call, Room, Shape, WorkerLanes

GIB = 1 << 30


class Machine:
    """Calls of `cpu_s` computing and `io_s` waiting each, as many at once as there are places and clients.

    Computing shares the cores; of one process it shares one core, too, unless the model lets go of Python's lock.
    """

    def __init__(self, cores, cpu_s, io_s=0.0, *, frees_lock=False, clients=1000, memory=100 * GIB, most=None) -> None:
        self.cores, self.cpu_s, self.io_s, self.frees_lock, self.clients = cores, cpu_s, io_s, frees_lock, clients
        self.lanes = WorkerLanes(cores, most)
        self.room = Room(GIB, memory)
        self.now_s = 0.0
        self.changes: list[Shape] = []
        self.rate = 0.0
        self.rng = random.Random(7)
        self.number = itertools.count()
        self.running: list[tuple[float, int, Call]] = []

    def run(self, calls: int) -> "Machine":
        """Closed loop: whoever has an answer asks again."""
        running, served, since_s = self.running, 0, self.now_s
        while served < calls:
            shape = self.lanes.shape
            while len(running) < min(shape.places, self.clients):
                beside = len(running) // shape.processes + 1
                full = len(running) + 1 >= shape.places and self.clients >= shape.places
                in_all_s = min(shape.places, self.clients) * self.cpu_s / self.cores
                in_process_s = 0.0 if self.frees_lock else beside * self.cpu_s
                wall_s = max(self.cpu_s + self.io_s, in_process_s, in_all_s) * self.rng.uniform(0.97, 1.03)
                call = Call(self.now_s, self.cpu_s, wall_s, beside, full)
                heapq.heappush(running, (self.now_s + wall_s, next(self.number), call))
            self.now_s, _, call = heapq.heappop(running)
            served += 1
            if (decision := self.lanes.observe(call, self.now_s, lambda: self.room)) is not None:
                assert decision.reason
                self.changes.append(decision.shape)
        self.rate = calls / (self.now_s - since_s)
        return self


def test_it_begins_with_one_process_and_a_thread_per_core():
    assert WorkerLanes(4).shape == Shape(1, 4)
    assert WorkerLanes(4, most_places=1).shape == Shape(1, 1)


@pytest.mark.parametrize("cores", [2, 4, 8])
def test_a_model_that_holds_pythons_lock_gets_a_process_per_core(cores):
    machine = Machine(cores, cpu_s=0.02).run(2000)
    assert machine.lanes.shape == Shape(cores, 1)
    assert len(machine.changes) == 2  # one call at a time for a moment, then this


@pytest.mark.parametrize("cores", [2, 4, 8])
def test_native_code_that_lets_go_of_the_lock_keeps_one_process(cores):
    machine = Machine(cores, cpu_s=0.02, frees_lock=True).run(3000)
    assert machine.lanes.shape == Shape(1, cores)
    assert machine.changes == []


def test_a_model_that_waits_gets_threads_twice_as_many_at_each_step():
    machine = Machine(2, cpu_s=0.0001, io_s=0.2).run(8000)
    assert machine.changes[:4] == [Shape(1, 4), Shape(1, 8), Shape(1, 16), Shape(1, 32)]
    assert machine.lanes.shape.processes == 1
    assert machine.lanes.shape.threads == MOST_PLACES


def test_a_model_that_sleeps_is_asked_sixteen_times_at_once_within_four_seconds():
    machine = Machine(2, cpu_s=0.001, io_s=0.2)
    while machine.lanes.shape.places < 16:
        machine.run(1)
    assert machine.now_s < 4


def test_a_model_that_computes_a_third_of_its_time_gets_what_keeps_the_cores_busy():
    machine = Machine(2, cpu_s=0.01, io_s=0.02, frees_lock=True).run(4000)
    assert machine.lanes.shape == Shape(1, 6)


def test_one_that_computes_half_of_its_time_is_not_taken_for_one_that_holds_the_lock():
    machine = Machine(2, cpu_s=0.01, io_s=0.01, frees_lock=True).run(4000)
    assert machine.lanes.shape.processes == 1
    assert machine.lanes.shape.threads == 4


def test_one_that_computes_half_of_its_time_under_the_lock_uses_all_cores():
    machine = Machine(4, cpu_s=0.01, io_s=0.01).run(20_000)
    assert machine.run(500).rate > 0.8 * 4 / 0.01 * 0.5


def test_without_calls_that_wait_nothing_changes():
    assert Machine(4, cpu_s=0.001, io_s=0.2, clients=3).run(2000).changes == []
    assert Machine(4, cpu_s=0.02, clients=1).run(2000).changes == []


def test_threads_are_grown_only_as_far_as_calls_wait():
    machine = Machine(2, cpu_s=0.001, io_s=0.2, clients=20).run(4000)
    assert machine.lanes.shape.threads in (32, 16)


def test_a_growth_that_does_not_pay_is_taken_back_and_not_tried_again_soon():
    """Downstream of the model somebody else answers four at a time."""
    lanes, now_s, changes = WorkerLanes(2), 0.0, []
    for number in range(4000):
        places = lanes.shape.places
        wall_s = 0.2 * max(1.0, places / 4)
        now_s += wall_s / places
        decision = lanes.observe(Call(now_s - wall_s, 0.001, wall_s, places, True), now_s, lambda: Room(GIB, 100 * GIB))
        if decision is not None:
            changes.append((number, decision.shape.threads))
    assert [threads for _, threads in changes][:3] == [4, 8, 4]
    assert len(changes) < 12
    assert lanes.shape.threads in (4, 8)


def test_memory_bounds_the_processes():
    assert Machine(8, cpu_s=0.02, memory=3 * GIB).run(4000).lanes.shape.processes == 3
    assert Machine(8, cpu_s=0.02, memory=GIB // 2).run(4000).lanes.shape == Shape(1, 8)


def test_the_users_bound_is_never_passed():
    assert Machine(8, cpu_s=0.001, io_s=0.2, most=5).run(4000).lanes.shape.places <= 5
    assert Machine(8, cpu_s=0.02, most=3).run(4000).lanes.shape.places <= 3


def test_fewer_workers_than_decided_are_taken_as_they_are_and_more_are_not_asked_for_at_once():
    machine = Machine(2, cpu_s=0.02).run(1000)
    assert machine.lanes.shape == Shape(2, 1)
    machine.lanes.settle(1, machine.now_s)
    before = len(machine.changes)
    machine.run(400)
    assert machine.lanes.shape == Shape(1, 1)
    assert len(machine.changes) == before


def test_calls_that_began_under_another_shape_do_not_count():
    lanes = WorkerLanes(2)
    lanes.settle(1, 100.0)
    room = Room(GIB, 100 * GIB)
    for _ in range(100):
        assert lanes.observe(Call(99.0, 0.001, 0.2, 2, True), 100.5, lambda: room) is None


@settings(max_examples=30, deadline=None)
@given(
    cores=st.integers(1, 8),
    cpu_ms=st.floats(0.5, 50),
    io_ms=st.floats(0, 200),
    frees_lock=st.booleans(),
    clients=st.sampled_from([1, 2, 5, 50, 500]),
)
def test_it_never_flaps_and_never_ends_slower_than_it_began(cores, cpu_ms, io_ms, frees_lock, clients):
    machine = Machine(cores, cpu_ms / 1000, io_ms / 1000, frees_lock=frees_lock, clients=clients)
    first = Machine(cores, cpu_ms / 1000, io_ms / 1000, frees_lock=frees_lock, clients=clients)
    first.run(15)
    machine.run(6000)
    settled = len(machine.changes)
    assert settled <= 16
    assert machine.run(600).rate >= 0.8 * first.rate
    assert 1 <= machine.lanes.shape.places <= max(MOST_PLACES, cores)
