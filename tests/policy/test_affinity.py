"""Slices: everyone computes the same map, few keys move when replicas come and go, hot keys get more of them."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.affinity import FULL, MOST_SLICES, WINDOW_S, SliceMap
from steelyard.policy.units import CAPACITY_MMU_PER_S

KEYS = range(4000)


def ids(count):
    return [f"m-1-{number}" for number in range(count)]


def assigned(replicas):
    slices = SliceMap()
    slices.assign(replicas)
    return slices


def owners(replicas):
    slices = assigned(replicas)
    return {key: replicas[slices.subset(key)[0]] for key in KEYS}


def heat(slices, key, replicas_worth, start_s=0.0, lasts_s=5 * WINDOW_S, step_s=1.0):
    """Load on a key that would fill so many replicas, for a while. Returns the sizes on the way."""
    sizes = []
    for step in range(int(lasts_s / step_s)):
        mmu = int(replicas_worth * CAPACITY_MMU_PER_S * step_s)
        slices.charge(slices.find(key), mmu, start_s + step * step_s)
        sizes.append(len(slices.subset(key)))
    return sizes


def test_routers_agree_without_talking_whatever_the_order_of_their_replicas():
    replicas = ids(50)
    assert owners(replicas) == owners(replicas[::-1])


def test_another_process_agrees():
    """Nothing depends on the seed of Python's hash."""
    code = (
        "from steelyard.policy.affinity import SliceMap\n"
        "slices = SliceMap(); slices.assign([f'm-1-{n}' for n in range(50)])\n"
        "print([slices.subset(key)[0] for key in range(300)])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    slices = assigned(ids(50))
    assert told.strip() == str([slices.subset(key)[0] for key in range(300)])


@pytest.mark.parametrize("count", [2, 5, 40])
def test_a_replica_that_joins_takes_its_part_and_nothing_else_moves(count):
    before, after = owners(ids(count)), owners(ids(count + 1))
    moved = [key for key in KEYS if before[key] != after[key]]
    assert all(after[key] == f"m-1-{count}" for key in moved)
    assert len(moved) == pytest.approx(len(KEYS) / (count + 1), rel=0.35)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_a_replica_that_leaves_gives_up_its_part_and_nothing_else_moves(count):
    replicas = ids(count)
    gone = replicas[count // 2]
    before, after = owners(replicas), owners([replica for replica in replicas if replica != gone])
    assert all((before[key] == gone) == (before[key] != after[key]) for key in KEYS)
    heirs = Counter(after[key] for key in KEYS if before[key] == gone)
    assert len(heirs) >= min(count - 1, 10), "its keys go to many, not to a neighbour"


def test_keys_spread_evenly():
    counts = Counter(owners(ids(20)).values())
    assert len(counts) == 20
    assert max(counts.values()) / (len(KEYS) / 20) < 1.4


def test_the_next_in_the_ranking_takes_over():
    """Who leaves is replaced by the standby that every router knows."""
    replicas = ids(10)
    slices = assigned(replicas)
    for key in range(200):
        first, second = (replicas[position] for position in slices.ranking(slices.find(key))[:2])
        left = [replica for replica in replicas if replica != first]
        fewer = assigned(left)
        assert left[fewer.subset(key)[0]] == second


@pytest.mark.parametrize("worth", [0.1, 0.5, 1.5, 3.0, 6.0])
def test_a_hot_key_gets_replicas_in_proportion_to_its_load(worth):
    slices = assigned(ids(20))
    sizes = heat(slices, 7, worth)
    assert sizes == sorted(sizes)
    assert worth / FULL * 0.95 <= sizes[-1] <= worth / FULL + 1.1
    cold = [key for key in range(100) if key != 7]
    assert all(len(slices.subset(key)) == 1 for key in cold)


def test_a_key_that_cools_down_gives_its_replicas_back_the_last_first():
    slices = assigned(ids(20))
    heat(slices, 7, 6.0)
    hot = slices.subset(7)
    sizes = heat(slices, 7, 0.1, start_s=5 * WINDOW_S, lasts_s=8 * WINDOW_S)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert slices.subset(7) == hot[:1]


def test_load_that_wavers_does_not_move_the_key():
    """About 2.1 replicas' worth is where a slice needs its fourth: grown once, it stays grown."""
    slices = assigned(ids(20))
    sizes = []
    for wave in range(10):
        worth = 1.8 if wave % 2 else 2.3
        sizes += heat(slices, 7, worth, start_s=wave * 2 * WINDOW_S, lasts_s=2 * WINDOW_S)
    assert sizes == sorted(sizes)
    assert sizes[-1] == 4


def test_a_key_that_needs_all_gets_all_and_no_more():
    slices = assigned(ids(3))
    assert heat(slices, 7, 50.0)[-1] == 3
    assert sorted(slices.subset(7)) == [0, 1, 2]
    slices.assign(ids(2))
    assert sorted(slices.subset(7)) == [0, 1]
    slices.assign([])
    assert slices.subset(7) == []


def test_each_of_several_routers_sees_a_part_of_the_load():
    slices = SliceMap(routers=4)
    slices.assign(ids(20))
    assert heat(slices, 7, 3.0 / 4)[-1] == pytest.approx(3.0 / FULL, abs=1.1)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1000, 1000), st.integers(0, 10**9)), max_size=50))
def test_clocks_that_jump_never_lose_a_key(steps):
    slices = assigned(ids(5))
    now_s = 0.0
    for key, passed_s, mmu in steps:
        now_s += passed_s
        slices.charge(slices.find(key), mmu, now_s)
        assert 1 <= len(slices.subset(key)) <= 5


def test_slices_that_are_remembered_are_bounded():
    slices = assigned(ids(4))
    for key in range(3 * MOST_SLICES):
        slices.charge(slices.find(key), 10, 0.0)
    assert len(slices._slices) <= MOST_SLICES
