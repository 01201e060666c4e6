"""Speeds: relative, told apart from load, forgotten when nobody confirms them."""

from random import Random

import pytest

from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Candidate
from steelyard.policy.speed import HALF_LIFE_S, SLOWEST, Speeds


def fleet(count=4):
    ledger, speeds = Ledger(), Speeds()
    candidates = [Candidate(ledger.account(f"r{number}"), 10) for number in range(count)]
    speeds.assign(candidates)
    return candidates, speeds


def attempts(speeds, true, loads, count=2000, start_s=0.0):
    """Attempts in turn: seconds per milli-MU are a line in the load, over the true speed, with 20 % noise."""
    rng = Random(1)
    for number in range(count):
        replica = number % len(true)
        load = max(1.0, rng.gauss(loads[replica], 2.0))
        mmu = rng.randint(20_000, 200_000)
        seconds = mmu * (4e-6 + 0.5e-6 * load) / true[replica] * rng.uniform(0.8, 1.2)
        speeds.observe(f"r{replica}", mmu, seconds, load, start_s + number / 50)


@pytest.mark.parametrize("loads", [(8, 8, 8, 8), (4, 8, 8, 8), (14, 8, 8, 8)])
@pytest.mark.parametrize("true", [(1.0, 1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 1.0), (2.0, 1.0, 1.0, 1.0)])
def test_speeds_are_told_apart_from_loads(true, loads):
    candidates, speeds = fleet()
    attempts(speeds, true, loads)
    others = sum(candidate.speed for candidate in candidates[1:]) / 3
    assert candidates[0].speed / others == pytest.approx(true[0], rel=0.3)


def test_what_nobody_confirms_is_forgotten():
    candidates, speeds = fleet()
    attempts(speeds, (0.4, 1.0, 1.0, 1.0), (8, 8, 8, 8))
    assert candidates[0].speed < 0.6
    for step in range(40):  # it gets nothing any more, the others do
        speeds.observe("r1", 100_000, 0.8, 8.0, 40.0 + step * HALF_LIFE_S / 2)
    assert candidates[0].speed == 1.0


def test_nonsense_teaches_nothing_and_the_worst_is_bounded():
    candidates, speeds = fleet(2)
    speeds.observe("unknown", 100, 1.0, 1.0, 0.0)
    speeds.observe("r0", 0, 1.0, 1.0, 0.0)
    speeds.observe("r0", 100, -1.0, 1.0, 0.0)
    assert [candidate.speed for candidate in candidates] == [1.0, 1.0]
    for step in range(500):
        speeds.observe("r0", 1000, 1000.0, 1.0, 500.0 - step)  # the clock runs backwards
        speeds.observe("r1", 1000, 0.001, 1.0, float(step))
    assert all(SLOWEST / 1.1 <= candidate.speed <= 1.1 / SLOWEST for candidate in candidates)


def test_a_replica_that_was_replaced_under_its_name_keeps_what_was_learnt():
    candidates, speeds = fleet()
    attempts(speeds, (0.5, 1.0, 1.0, 1.0), (8, 8, 8, 8))
    fresh = Candidate(candidates[0].account, 10)
    speeds.assign([fresh, *candidates[1:]])
    assert fresh.speed == candidates[0].speed < 1.0
