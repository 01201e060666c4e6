"""Loads that no public trace has: shared system prompts, agents, a noisy tenant, slow and dying replicas.

Each is drawn by seed and stationary: sessions begin all through `DURATION_S` and those that outlast it go on at its
beginning. Turns come when a user or a tool would send them were the service good; they do not wait for it, so that a
slow service is not flattered by less load. `scaling.py` brings them to the size of a fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from steelyard.simulate.requests import SimRequest, Trace, chain, mixed

DURATION_S = 600.0
BLOCK_TOKENS = 256
TOKEN_S = 0.03  # a good service's time per token of an answer


def shared_prompt(seed: int) -> Trace:
    """500 users of one assistant: a system prompt of 2,000 tokens, then conversations of a few turns."""
    rng = Random(seed)
    system = chain((), mixed(1), 2_048 // BLOCK_TOKENS)
    requests: list[SimRequest] = []
    for user in range(500):
        turns = [
            (_lognormal(rng, 80, 1.0, 1_000), _lognormal(rng, 180, 0.8, 1_000), rng.expovariate(1 / 20.0) + 3.0)
            for _ in range(1 + min(11, int(rng.expovariate(1 / 4.0))))
        ]
        requests += _session(rng.random() * DURATION_S, system, turns, key=mixed(seed, user), tenant=user)
    return _trace("shared-prompt", requests)


def agents(seed: int) -> Trace:
    """Agent loops: one of five tool sets as the head, a context that tool results grow, calls in quick succession."""
    rng = Random(seed)
    heads = [chain((), mixed(2, kind), 3_072 // BLOCK_TOKENS) for kind in range(5)]
    requests: list[SimRequest] = []
    for loop in range(120):
        turns = [
            (_lognormal(rng, 600, 1.2, 12_000), _lognormal(rng, 90, 0.8, 1_200), rng.expovariate(1 / 2.0) + 0.3)
            for _ in range(4 + min(36, int(rng.expovariate(1 / 10.0))))
        ]
        head = heads[min(rng.randrange(8), 4)]
        requests += _session(rng.random() * DURATION_S, head, turns, key=mixed(seed, loop), tenant=loop)
    return _trace("agents", requests)


def uniform_short(seed: int) -> Trace:
    """Requests that hardly differ: 200 to 300 tokens in, 90 to 110 out, Poisson. What request counts were made for."""
    rng = Random(seed)
    requests = [
        SimRequest(rng.random() * DURATION_S, rng.randrange(200, 300), rng.randrange(90, 110), tenant=rng.randrange(20))
        for _ in range(6_000)
    ]
    return _trace("uniform-short", requests)


def noisy_neighbour(seed: int) -> Trace:
    """Nineteen tenants of short chats, and one that sends as much as all of them, in bursts of long documents."""
    rng = Random(seed)
    requests = [
        SimRequest(
            rng.random() * DURATION_S,
            _lognormal(rng, 400, 0.8, 4_000),
            _lognormal(rng, 150, 0.7, 1_000),
            tenant=1 + rng.randrange(19),
        )
        for _ in range(4_000)
    ]
    for _ in range(30):
        burst_s = rng.random() * DURATION_S
        requests += [
            SimRequest(
                (burst_s + rng.random() * 2.0) % DURATION_S,
                _lognormal(rng, 6_000, 0.5, 24_000),
                _lognormal(rng, 300, 0.5, 1_500),
                tenant=0,
            )
            for _ in range(20)
        ]
    return _trace("noisy-neighbour", requests)


def half_speed(seed: int) -> Trace:
    """Mixed chats, and an eighth of the replicas take twice as long for everything."""
    trace = _mixed_chats(seed, "half-speed")
    trace.slow_share = 1 / 8
    return trace


def death(seed: int) -> Trace:
    """Mixed chats, and a replica dies half way through with all that it held."""
    trace = _mixed_chats(seed, "death")
    trace.deaths = 1
    return trace


SYNTHETIC: dict[str, Callable[[int], Trace]] = {
    "uniform-short": uniform_short,
    "shared-prompt": shared_prompt,
    "agents": agents,
    "noisy-neighbour": noisy_neighbour,
    "half-speed": half_speed,
    "death": death,
}


def _mixed_chats(seed: int, name: str) -> Trace:
    rng = Random(seed)
    requests = [
        SimRequest(
            rng.random() * DURATION_S,
            _lognormal(rng, 500, 1.2, 16_000),
            _lognormal(rng, 150, 1.0, 2_000),
            tenant=rng.randrange(20),
        )
        for _ in range(4_000)
    ]
    return _trace(name, requests)


def _session(
    start_s: float,
    head: tuple[int, ...],
    turns: list[tuple[int, int, float]],
    *,
    key: int,
    tenant: int,
) -> list[SimRequest]:
    """Turns of (tokens that are added, tokens of the answer, seconds before the next): each prompt holds all before."""
    requests = []
    blocks, tokens, now_s = head, len(head) * BLOCK_TOKENS, start_s
    for added, answer, pause_s in turns:
        prompt = tokens + added
        blocks = chain(blocks, key, prompt // BLOCK_TOKENS - len(blocks))
        after = chain(blocks, key, (prompt + answer) // BLOCK_TOKENS - len(blocks))
        requests.append(
            SimRequest(
                now_s % DURATION_S,
                prompt,
                answer,
                blocks=blocks,
                end_blocks=after[len(blocks) :],
                key=key,
                tenant=tenant,
            )
        )
        blocks, tokens = after, prompt + answer
        now_s += 0.5 + answer * TOKEN_S + pause_s
    return requests


def _trace(name: str, requests: list[SimRequest]) -> Trace:
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, requests, BLOCK_TOKENS, DURATION_S)


def _lognormal(rng: Random, median: float, spread: float, most: int) -> int:
    return max(1, min(most, int(rng.lognormvariate(0.0, spread) * median)))
