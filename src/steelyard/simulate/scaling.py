"""A trace brought to the size of a fleet: copies of it, shifted in time, laid over each other.

The load per replica is the same at every size, so that cells of 8 and of 512 replicas can be compared. Bursts within a
copy stay; copies are independent, as the users of a larger service are. A copy's blocks and keys are made its own,
except those that begin a good part of all prompts (a system prompt), which every copy shares. It runs nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from steelyard.policy.units import MMU_PER_MU, CostModel, Features
from steelyard.simulate.requests import SimRequest, Trace, mixed
from steelyard.simulate.reuse import pooled_cached_tokens

COMMON_SHARE = 0.05  # of the prompts: what so many begin with is the workload's, not a conversation's
CACHE_SHARE = 0.5  # of all memory, taken to hold what may be reused; the rest serves what runs
ROUNDS = 2  # the load depends on what is reused, and what is reused on the copies
WARM_UP = 0.2  # of a cell's requests: they load the replicas and fill the caches, and are not scored
COLD = 2.0  # how much slower they come where caches matter: cold conversations all at once are an overload of their own
SAMPLE_REPLICAS = 8  # what is reused per replica hardly depends on how many there are: it is found on a small fleet


@dataclass(frozen=True, slots=True)
class Size:
    """What a cell asks for. `capacity` counts replicas of full speed: one at half speed is a half."""

    replicas: int
    capacity: float
    utilisation: float
    share: float  # of the trace's duration, at most
    requests_per_replica: int  # at most


@dataclass(frozen=True, slots=True)
class Scaled:
    """Requests of a cell in the order of arrival, from 0 on, and how they came about."""

    trace: Trace
    requests: list[SimRequest]
    copies: int
    stretch: float  # of every copy's time; 1: none
    duration_s: float
    warm_s: float  # what arrives before is not scored
    mean_mu: float


def scaled(trace: Trace, size: Size, cost: CostModel, kv_tokens: int, seed: int) -> Scaled:
    """Copies of the trace that load so many replicas by `utilisation`.

    The load counts prompts as reused that a pool of half the replicas' memory would hold: what a fleet is sized for is
    neither that nothing is reused nor that all could be.
    """
    uncached = [0] * len(trace.requests)
    whole_mu = mean_mu = _mean_mu(trace.requests, uncached, cost)
    if trace.has_prefixes:
        replicas = min(size.replicas, SAMPLE_REPLICAS)
        sample = replace(size, replicas=replicas, capacity=size.capacity * replicas / size.replicas)
        for _ in range(ROUNDS):
            requests = _superposed(trace, sample, mean_mu, seed)[0]
            cached = pooled_cached_tokens(requests, trace.block_tokens, int(replicas * kv_tokens * CACHE_SHARE))
            warm = int(WARM_UP * len(cached))
            mean_mu = _mean_mu(requests[warm:], cached[warm:], cost)
    requests, copies, window_s = _superposed(trace, size, mean_mu, seed)
    # What fell into this window is more or less than the trace's mean: stretch its time to the load that is wanted.
    window_mu = _mean_mu(requests, [0] * len(requests), cost) * len(requests) * mean_mu / whole_mu
    duration_s = window_mu / (size.utilisation * size.capacity * 1000.0)
    stretch = duration_s / window_s
    warm_s = WARM_UP * duration_s
    slow = COLD if trace.has_prefixes else 1.0
    for request in requests:
        at_s = request.arrival_s * stretch
        request.arrival_s = at_s * slow if at_s < warm_s else at_s + (slow - 1) * warm_s
    return Scaled(trace, requests, copies, stretch, duration_s + (slow - 1) * warm_s, warm_s * slow, mean_mu)


def _mean_mu(requests: list[SimRequest], cached: list[int], cost: CostModel) -> float:
    total = sum(price(request, tokens, cost) for request, tokens in zip(requests, cached, strict=True))
    return total / max(1, len(requests)) / MMU_PER_MU


def price(request: SimRequest, cached_tokens: int, cost: CostModel) -> int:
    """Milli-MU of a request whose answer's length is known and of whose prompt so much was cached."""
    return cost.mmu(
        Features(
            input_tokens=request.input_tokens - cached_tokens,
            cached_tokens=cached_tokens,
            output_tokens=request.output_tokens,
        )
    )


def _superposed(trace: Trace, size: Size, mean_mu: float, seed: int) -> tuple[list[SimRequest], int, float]:
    """Requests of about the wanted number of copies, how many those are, and the window (in the trace's own time)."""
    base, period_s = trace.requests, trace.duration_s
    wanted_rate = size.utilisation * size.capacity * 1000.0 / mean_mu
    own_rate = len(base) / period_s
    copies = max(1, round(wanted_rate / own_rate))
    count = size.requests_per_replica * size.replicas
    window_s = min(size.share * period_s, count / (copies * own_rate))
    rng = Random(f"{seed} {trace.name}")
    common = _common(base)
    requests: list[SimRequest] = []
    while not requests:  # a short window may miss all of a small trace
        for copy in range(copies):
            begins_s = rng.random() * period_s
            own = _Renamed(copy, common)
            for request in base:
                at_s = (request.arrival_s - begins_s) % period_s
                if at_s < window_s:
                    requests.append(_copied(request, at_s, copy, own))
    requests.sort(key=lambda request: request.arrival_s)
    return requests, copies, window_s


def _common(requests: list[SimRequest]) -> frozenset[int]:
    """Blocks that begin a good part of the prompts."""
    counts = Counter(block for request in requests for block in request.blocks)
    return frozenset(block for block, count in counts.items() if count >= COMMON_SHARE * len(requests))


class _Renamed(dict[int, int]):
    """The blocks of one copy by those of the trace; each is hashed once, however many prompts hold it."""

    def __init__(self, copy: int, common: frozenset[int]) -> None:
        super().__init__((block, block) for block in common)
        self._copy = copy

    def __missing__(self, block: int) -> int:
        name = self[block] = mixed(block, self._copy)
        return name


def _copied(request: SimRequest, arrival_s: float, copy: int, own: _Renamed) -> SimRequest:
    return SimRequest(
        arrival_s,
        request.input_tokens,
        request.output_tokens,
        blocks=tuple([own[block] for block in request.blocks]),
        end_blocks=tuple([own[block] for block in request.end_blocks]),
        key=None if request.key is None else mixed(request.key, copy),
        tenant=request.tenant,
    )
