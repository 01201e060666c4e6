"""Which replicas a key belongs to: a slice map, so that those who ask again find what was kept for them.

**Inputs** The ids of the replicas, keys (any whole numbers, the same in every router), and the load of each key as it
is charged.
**Parameters** `SLICES` = 2¹⁶ parts of the hashed key space, of which the `MOST_SLICES` = 8,192 last used are remembered
with their load; a slice gets another replica when its load exceeds `FULL` = 0.7 of those it has, and loses one when
`SHRINK` = 0.7 of that would do, over `WINDOW_S` = 30 s. `STANDBYS` = 2 more take over where one cannot take requests.
**Trade-offs** Every slice ranks the replicas by rendezvous hashing: routers agree without talking, a replica that joins
takes 1/n of the slices, and one that leaves gives up only its own. Load decides how many of the ranking a slice uses;
subsets are nested, so routers that see different shares of a key's load still agree on the first ones.
**Failure modes** Hashing does not balance, the expected wait does: the subset is a preference, not a restriction. A
slice that is forgotten (not used for long, or too many others were) starts over with one replica.

The slices of Google's Slicer and Databricks' Dicer are the model; there a service assigns them, here a hash does.
`expected_wait.py` owns one map per served entity.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np

from steelyard.policy.units import CAPACITY_MMU_PER_S

SLICES: Final = 2**16
MOST_SLICES: Final = 8192
FULL: Final = 0.7
SHRINK: Final = 0.7
WINDOW_S: Final = 30.0
STANDBYS: Final = 2
_FEW: Final = 16  # replicas, up to which a ranking is of all


class Slice:
    """A part of the key space, and how many replicas its load needs."""

    __slots__ = ("at_s", "load_mmu", "number", "ranking", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 1  # replicas
        self.load_mmu = 0.0  # of the last `WINDOW_S`, fading
        self.at_s = 0.0
        self.ranking: list[int] = []  # positions of the first replicas; [] when not known


class SliceMap:
    """`routers`: how many share the load that this one sees a part of."""

    __slots__ = ("_seeds", "_slices", "routers")

    def __init__(self, routers: int = 1) -> None:
        self.routers = routers
        self._seeds = np.zeros(0, dtype=np.uint64)
        self._slices: OrderedDict[int, Slice] = OrderedDict()

    def assign(self, replicas: Sequence[str]) -> None:
        """These are the replicas from now on. Their order does not matter to who gets what."""
        seeds = [int.from_bytes(blake2b(replica.encode(), digest_size=8).digest(), "big") for replica in replicas]
        self._seeds = np.array(seeds, dtype=np.uint64)
        for part in self._slices.values():
            part.ranking = []

    def subset(self, key: int) -> list[int]:
        """Positions of the replicas of a key, in the order of preference."""
        part = self.find(key)
        return self.ranking(part)[: part.size]

    def find(self, key: int) -> Slice:
        number = mixed(key) % SLICES
        part = self._slices.get(number)
        if part is None:
            part = self._slices[number] = Slice(number)
            if len(self._slices) > MOST_SLICES:
                self._slices.popitem(last=False)
        else:
            self._slices.move_to_end(number)
        return part

    def ranking(self, part: Slice) -> list[int]:
        """The replicas of a slice in the order of preference, and its standbys after them (perhaps more of them)."""
        ranking = part.ranking
        wanted = min(part.size + STANDBYS, len(self._seeds))
        if len(ranking) < wanted:
            ranking = part.ranking = self._rank(part.number, max(wanted, _FEW))
        return ranking

    def charge(self, part: Slice, mmu: int, now_s: float) -> None:
        """A request of this slice goes somewhere: the slice grows or shrinks."""
        part.load_mmu = part.load_mmu * math.exp(-max(0.0, now_s - part.at_s) / WINDOW_S) + mmu
        part.at_s = max(part.at_s, now_s)
        replicas = self.routers * part.load_mmu / (WINDOW_S * CAPACITY_MMU_PER_S * FULL)  # that it would fill
        if replicas > part.size:
            part.size = math.ceil(replicas)
        elif replicas < SHRINK * (part.size - 1):
            part.size = max(1, math.ceil(replicas / SHRINK))

    def _rank(self, number: int, count: int) -> list[int]:
        """The first `count` replicas of a slice by rendezvous hashing."""
        weights = self._seeds ^ np.uint64(mixed(number + 1))
        weights = (weights ^ (weights >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # SplitMix64's finisher
        weights = (weights ^ (weights >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        weights ^= weights >> np.uint64(31)
        if count < len(weights):
            first = np.argpartition(weights, count)[:count]
            first = first[np.argsort(weights[first])]
        else:
            first = np.argsort(weights)
        ranking: list[int] = first.tolist()
        return ranking


def mixed(number: int) -> int:
    """64 bits in which every bit of `number` shows, the same in every process."""
    number = (number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return number ^ (number >> 31)
