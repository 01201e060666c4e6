"""The vertical axis against models of known behaviour: it finds how much a replica holds, is quick down, settles."""

import itertools
import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.concurrency_memory import Window
from steelyard.policy.vertical import DECIDE_EVERY_S, Bounds, Decision, Reason, Vertical

# Concurrency: p50 and p90 in seconds, one server of a language model, as published.
PUBLISHED = {
    1: (2.8, 2.9), 4: (4.1, 4.3), 6: (4.4, 4.8), 8: (4.6, 4.8), 12: (6.5, 7.8), 16: (8.8, 9.2), 32: (17.6, 18.1),
}  # fmt: skip
Latency = Callable[[float], tuple[float, float]]  # p50 and p90 by concurrency


def published(held: float) -> tuple[float, float]:
    known = list(PUBLISHED)
    place = min(max(1, bisect_right(known, held)), len(known) - 1)
    low, high = known[place - 1], known[place]
    share = (held - low) / (high - low)
    p50, p90 = (PUBLISHED[low][n] + share * (PUBLISHED[high][n] - PUBLISHED[low][n]) for n in (0, 1))
    return p50, p90


def cpu_bound(cores: int, cpu_s: float = 0.02) -> Latency:
    return lambda held: (cpu_s * max(1.0, held / cores), 1.1 * cpu_s * max(1.0, held / cores))


def io_bound(cpu_s: float = 0.002, wait_s: float = 1.0) -> Latency:
    """One core, and a wait that costs nothing."""
    return lambda held: (max(wait_s + cpu_s, held * cpu_s), 1.2 * max(wait_s + cpu_s, held * cpu_s))


def measured(latency: Latency, held: float, rng: Random, *, noise: float = 0.03, memory: float | None = None) -> Window:
    p50, p90 = latency(held)
    p50, p90 = p50 * rng.gauss(1, noise), p90 * rng.gauss(1, noise)
    per_s = held / latency(held)[0] * rng.gauss(1, noise)
    return Window(int(per_s * DECIDE_EVERY_S), held, per_s, p50, p90, memory)


@dataclass
class Run:
    vertical: Vertical
    targets: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    now_s: float = 0.0

    def go(
        self,
        latency: Latency,
        minutes: float,
        rng: Random,
        *,
        load: float = 1e9,
        memory: Callable[[float], float] | None = None,
    ) -> "Run":
        """`load`: what clients would keep in flight."""
        for _ in range(int(minutes * 60 / DECIDE_EVERY_S)):
            self.now_s += DECIDE_EVERY_S
            held = min(float(self.vertical.target), load)
            window = measured(latency, held, rng, memory=None if memory is None else memory(held))
            self.decisions.append(self.vertical.decide(self.now_s, window))
            self.targets.append(self.vertical.target)
        return self

    def changes(self, minutes: float) -> int:
        recent = self.targets[-int(minutes * 60 / DECIDE_EVERY_S) :]
        return sum(1 for before, after in itertools.pairwise(recent) if before != after)


def learnt(latency: Latency, minutes: float = 10, *, seed: int = 1, latency_s: float | None = None) -> Run:
    return Run(Vertical(Bounds(1, 1000, latency_s))).go(latency, minutes, Random(seed))


# --- what it finds


@pytest.mark.parametrize("seed", range(5))
def test_a_cpu_bound_model_on_one_core_settles_at_one_and_stays(seed):
    run = learnt(cpu_bound(1), 10, seed=seed)
    assert run.targets[-1] == 1
    run.go(cpu_bound(1), 10, Random(seed))
    assert run.targets[-1] == 1
    assert run.changes(10) <= 2  # at most one more trial


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_waits_settles_at_hundreds_within_ten_minutes(seed):
    run = learnt(io_bound(), 10, seed=seed)
    assert run.targets[-1] >= 100
    assert run.targets[-1] <= 700  # its core is full at 501


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("latency_s", [5.0, None])
def test_the_published_table_finds_about_eight(seed, latency_s):
    run = learnt(published, 15, seed=seed, latency_s=latency_s)
    assert 7 <= run.targets[-1] <= 10
    if latency_s is not None:
        assert published(run.targets[-1])[1] <= latency_s


def test_four_cores_hold_about_four():
    assert 4 <= learnt(cpu_bound(4), 15).targets[-1] <= 6


def test_what_calibration_found_is_where_it_begins():
    run = Run(Vertical(Bounds(1, 1000), target=400)).go(io_bound(), 2, Random(1))
    assert min(run.targets) >= 400


# --- quick down


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_becomes_four_times_slower_is_throttled_within_two_cycles(seed):
    run = learnt(published, 15, seed=seed, latency_s=5.0)
    before = run.targets[-1]
    run.go(lambda held: tuple(4 * s for s in published(held)), 1, Random(seed))
    assert run.targets[-1] < before
    run.go(lambda held: tuple(4 * s for s in published(held)), 10, Random(seed))
    assert run.targets[-1] == 1  # nothing meets the target: the least that there can be


def test_without_a_latency_target_it_is_throttled_too_and_comes_back_where_that_pays():
    run = learnt(io_bound(), 10)
    before = run.targets[-1]
    slow = io_bound(0.002, 4.0)  # what it waits for is slower: holding less does not help
    run.go(slow, 1, Random(2))
    assert run.targets[-1] <= before / 2 + 1
    run.go(slow, 40, Random(3))
    assert run.targets[-1] >= 0.8 * before


def test_p90_above_its_target_cuts_at_once_where_it_is_far_and_after_two_windows_where_it_is_near():
    for p90_s, cycles in ((9.0, 1), (5.3, 2)):
        vertical = Vertical(Bounds(1, 100, 5.0), target=20)
        for cycle in range(1, cycles + 1):
            decision = vertical.decide(30.0 * cycle, Window(100, 20.0, 4.0, 4.0, p90_s))
            assert (decision.target < 20) == (cycle == cycles)
        assert decision.reason is Reason.LATENCY
        assert decision.target >= 10


def test_full_memory_cuts_and_memory_that_is_nearly_full_forbids_trials():
    run = Run(Vertical(Bounds(1, 1000), target=50)).go(
        io_bound(), 5, Random(1), memory=lambda held: 0.3 + held * 0.009
    )  # fmt: skip
    assert max(run.targets) == 100 or max(run.targets) <= 66
    run.go(io_bound(), 10, Random(1), memory=lambda held: 0.3 + held * 0.009)
    assert 0.3 + run.targets[-1] * 0.009 < 0.9
    near = Run(Vertical(Bounds(1, 1000), target=50)).go(io_bound(), 10, Random(1), memory=lambda _: 0.85)
    assert set(near.targets) == {50}


# --- what it does not know


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (None, Reason.NO_DATA),
        (Window(0, 0.0, 0.0, 0.0, 0.0), Reason.NO_DATA),
        (Window(20, 8.0, 0.7, 1.0, 1.2), Reason.FEW),
        (Window(500, 3.0, 20.0, 0.2, 0.3), Reason.UNUSED),
        (Window(500, 5.0, 20.0, 0.2, 0.3), Reason.NOT_FILLED),
    ],
)
def test_too_little_to_tell_holds_and_says_why(window, reason):
    decision = Vertical(Bounds(1, 100), target=8).decide(30.0, window)
    assert (decision.target, decision.reason) == (8, reason)


def test_few_requests_a_window_are_pooled_until_they_are_enough():
    vertical = Vertical(Bounds(1, 100))
    decisions = [vertical.decide(30.0 * n, Window(11, 1.0, 0.36, 2.8, 2.9)) for n in range(1, 4)]
    assert [decision.reason for decision in decisions] == [Reason.FEW, Reason.FEW, Reason.TRIAL]


def test_a_trial_that_the_load_does_not_fill_is_taken_back_and_says_nothing_about_the_model():
    vertical = Vertical(Bounds(1, 1000), target=10)
    run = Run(vertical).go(io_bound(), 0.5, Random(1))
    assert vertical.target == 20
    run.go(io_bound(), 6, Random(1), load=10)
    assert vertical.target == 10
    assert any(decision.reason is Reason.UNFILLED for decision in run.decisions)
    run.go(io_bound(), 15, Random(1))
    assert vertical.target >= 100


def test_it_is_quiet_once_it_has_learnt_and_trials_become_rare():
    run = learnt(cpu_bound(4), 20)
    run.go(cpu_bound(4), 600, Random(5))
    per_hour = [sum(1 for a, b in itertools.pairwise(run.targets[at : at + 120]) if a != b) for at in (0, 120, 960)]
    assert per_hour[-1] <= 2 < per_hour[0]


@pytest.mark.parametrize("bounds", [(0, 4, None), (5, 4, None), (1, 4, 0.0)])
def test_bounds_that_make_no_sense_are_refused(bounds):
    with pytest.raises(ValueError, match=r"range|target"):
        Bounds(*bounds)


# --- invariants

WINDOWS = st.lists(
    st.none()
    | st.builds(
        Window,
        st.integers(0, 5000),
        st.floats(0, 400),
        st.floats(0.001, 5000),
        st.floats(0.001, 60),
        st.floats(0.001, 90),
        st.none() | st.floats(0, 1),
    ),
    min_size=1,
    max_size=80,
)
BOUNDS = st.tuples(st.integers(1, 50), st.integers(1, 500), st.none() | st.floats(0.01, 30)).filter(
    lambda bounds: bounds[0] <= bounds[1]
)


@settings(max_examples=150, deadline=None)
@given(WINDOWS, BOUNDS, st.integers(1, 500))
def test_whatever_comes_the_number_stays_within_the_bounds_and_no_cycle_doubles_it_twice(windows, bounds, first):
    vertical = Vertical(Bounds(*bounds), target=first)
    before = vertical.target
    for number, window in enumerate(windows):
        decision = vertical.decide(30.0 * number, window)
        assert bounds[0] <= decision.target <= bounds[1]
        assert before // 2 <= decision.target <= 2 * before
        json.dumps(decision.numbers, allow_nan=False)
        before = decision.target


@settings(max_examples=100, deadline=None)
@given(WINDOWS, BOUNDS)
def test_a_restart_between_any_two_decisions_changes_none_of_them(windows, bounds):
    through, restarted = Vertical(Bounds(*bounds), target=5), Vertical(Bounds(*bounds), target=5)
    for number, window in enumerate(windows):
        now_s = 30.0 * number
        assert through.decide(now_s, window) == restarted.decide(now_s, window)
        restarted = Vertical(Bounds(*bounds), json.loads(json.dumps(restarted.state())))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 16), st.floats(0.005, 2.0), st.integers(0, 10_000))
def test_a_constant_model_is_not_flapped_about(cores, cpu_s, seed):
    latency = cpu_bound(cores, cpu_s)
    run = learnt(latency, 30, seed=seed)
    run.go(latency, 60, Random(seed))
    assert run.changes(60) <= 8  # a few trials, each up and back
    assert run.targets[-1] <= 3 * cores
