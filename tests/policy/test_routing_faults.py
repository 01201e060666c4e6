"""Faults that real routers showed in production, as far as decisions alone cause them, on a virtual clock."""

import gc
import sys
from collections import Counter
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from steelyard.policy.expected_wait import ExpectedWait
from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Ask, Candidate, LeastRequests, PowerOfTwoChoices, RoundRobin
from steelyard.policy.units import GUESS, Features
from support.shared_replicas import SharedReplica, World

BLOCK_TOKENS = 64.0


def weigh(ledger, seed=1):
    return ExpectedWait(ledger, Random(seed))


def hashes(name, length, before=()):
    """`before` and so many blocks more."""
    return before + tuple(hash((name, number)) & (2**64 - 1) for number in range(length))


def chat(blocks, output_tokens, key=None):
    features = Features(input_tokens=len(blocks) * BLOCK_TOKENS, output_tokens=output_tokens)
    return Ask(features, GUESS, blocks, BLOCK_TOKENS, key)


def poisson(rng, per_s, lasts_s):
    at_s = rng.expovariate(per_s)
    while at_s < lasts_s:
        yield at_s
        at_s += rng.expovariate(per_s)


@pytest.mark.parametrize("keyed", [False, True])
def test_one_long_system_prompt_for_all_neither_crowds_one_replica_nor_is_computed_twice(keyed):
    """T10: 500 users with 4k tokens in common and 200 of their own, 4 replicas, two turns each."""
    rng = Random(1)
    system = hashes("system", 64)
    users = {user: hashes(user, 3, system) for user in range(500)}
    turns = []
    for user, at_s in zip(range(500), poisson(rng, 12.0, 10_000), strict=False):
        turns.append((at_s, user, 1))
        turns.append((at_s + rng.uniform(4, 20), user, 2))
    arrivals = []
    for at_s, user, turn in sorted(turns):
        blocks = users[user] if turn == 1 else hashes((user, 2), 3, users[user])
        arrivals.append((at_s, chat(blocks, 40.0, user if keyed else None), (user, turn)))
    world = World([SharedReplica(f"r{n}") for n in range(4)], weigh).run(arrivals)

    assert world.max_over_mean_mmu() <= 1.25
    seen, hits, chances = set(), 0, 0
    for each in sorted(world.served, key=lambda each: each.at_s):
        if each.replica in seen:
            chances += 1
            hits += each.cached_tokens >= 64 * BLOCK_TOKENS
        seen.add(each.replica)
    assert len(seen) == 4, "each replica learns the prompt"
    assert hits >= 0.95 * chances
    second = [each for each in world.served if each.label[1] == 2]
    assert sum(min(each.cached_tokens, 67 * BLOCK_TOKENS) for each in second) >= 0.9 * 67 * BLOCK_TOKENS * len(second)


def half_speed(make_chooser, lasts_s=240.0, per_s=22.0, **events):
    rng = Random(3)
    arrivals = [
        (at_s, Ask(Features(input_tokens=rng.expovariate(1 / 200), output_tokens=rng.expovariate(1 / 35)), GUESS), None)
        for at_s in poisson(rng, per_s, lasts_s)
    ]
    replicas = [SharedReplica(f"r{n}", speed=0.5 if n == 0 else 1.0) for n in range(4)]
    return World(replicas, make_chooser).run(arrivals, **events)


def test_a_replica_at_half_speed_gets_about_half_and_nobody_waits_for_it():
    """A grey failure: it answers, only slowly. Nobody tells the router."""
    world = half_speed(weigh)
    slow, *others = world.candidates
    assert 0.35 <= slow.speed / (sum(each.speed for each in others) / 3) <= 0.71
    counts = Counter(each.replica for each in world.served)
    assert counts["r0"] < 0.9 * sum(counts.values()) / 4
    p99_s = world.quantile_s(0.99, since_s=30.0)
    for other in (RoundRobin, lambda ledger: PowerOfTwoChoices(ledger, Random(1))):
        assert p99_s < half_speed(other).quantile_s(0.99, since_s=30.0)


def test_a_replica_that_recovered_is_as_good_as_the_others_again():
    def recover(world):
        for each in world.replicas:
            each.advance(120.0)
        world.replicas[0].speed = 1.0

    world = half_speed(weigh, lasts_s=400.0, events=[(120.0, recover)])
    late = Counter(each.replica for each in world.served if each.at_s > 250.0)
    assert late["r0"] > 0.85 * sum(late.values()) / 4


def test_equal_replicas_stay_equal_whatever_their_load():
    """Noise and affinity must not make one of equal replicas seem slow."""
    rng = Random(4)
    hot = [hashes(("hot", n), 40) for n in range(3)]
    arrivals = []
    for at_s in poisson(rng, 14.0, 200.0):
        blocks = rng.choice(hot) if rng.random() < 0.5 else hashes(rng.random(), 10)
        arrivals.append((at_s, chat(blocks, rng.expovariate(1 / 60)), None))
    world = World([SharedReplica(f"r{n}") for n in range(4)], weigh).run(arrivals)
    speeds = [each.speed for each in world.candidates]
    assert max(speeds) / min(speeds) <= 1.2


def sessions(rng, users, per_s, lasts_s):
    """Conversations that grow by 4 blocks a turn, some users far busier than others."""
    talks = [hashes(user, 16) for user in range(users)]
    arrivals = []
    for at_s in poisson(rng, per_s, lasts_s):
        user = min(int(rng.paretovariate(1.1)) - 1, users - 1)
        if len(talks[user]) > 200:
            talks[user] = hashes((user, at_s), 16)
        arrivals.append((at_s, chat(talks[user], 20.0, user), user))
        talks[user] = hashes((user, at_s), 4, talks[user])
    return arrivals


def hit_share(world, since_s=0.0, until_s=float("inf")):
    """Tokens found ÷ tokens that a cache without end on one replica would have found."""
    known, found, ideal = set(), 0.0, 0.0
    for each in sorted(world.served, key=lambda each: each.at_s):
        held = 0
        while held < len(each.ask.blocks) and each.ask.blocks[held] in known:
            held += 1
        known.update(each.ask.blocks)
        if since_s <= each.at_s < until_s:
            found += min(each.cached_tokens, held * BLOCK_TOKENS)
            ideal += held * BLOCK_TOKENS
    return found / ideal


def test_hot_keys_find_their_prefixes_and_crowd_no_replica():
    arrivals = sessions(Random(5), 300, 25.0, 120.0)
    worlds = {}
    for name, make in (("weigh", weigh), ("least", lambda ledger: LeastRequests(ledger, Random(1)))):
        worlds[name] = World([SharedReplica(f"r{n}", cache_blocks=4000) for n in range(8)], make).run(arrivals)
    ours, least = worlds["weigh"], worlds["least"]
    assert hit_share(ours) >= 0.9
    assert hit_share(least) < 0.8
    assert ours.quantile_s(0.99) < least.quantile_s(0.99)


def test_a_death_costs_its_own_sessions_their_caches_and_no_others():
    """T38 and churn: the hit rate dips by what the dead one held, and is back soon."""

    def die(world):
        world.candidates = world.candidates[1:]

    arrivals = sessions(Random(6), 300, 25.0, 120.0)
    make = [SharedReplica(f"r{n}", cache_blocks=4000) for n in range(8)]
    world = World(make, weigh).run(arrivals, events=[(60.0, die)])
    assert all(each.replica != "r0" for each in world.served if each.at_s > 60.0)
    assert hit_share(world, 60.0, 70.0) >= 0.75
    assert hit_share(world, 75.0) >= 0.9


def test_a_new_router_is_warm_within_a_minute_without_a_summary():
    """T38: it knows only what it sees, and the keys' homes."""

    def restart(world):
        world.chooser = weigh(world.ledger, seed=2)

    arrivals = sessions(Random(7), 300, 25.0, 180.0)
    make = [SharedReplica(f"r{n}", cache_blocks=4000) for n in range(8)]
    world = World(make, weigh).run(arrivals, events=[(60.0, restart)])
    assert hit_share(world, 60.0, 120.0) >= 0.8 * hit_share(world, 30.0, 60.0)
    assert hit_share(world, 120.0) >= 0.95 * hit_share(world, 30.0, 60.0)


def reachable(root):
    """How many objects (and bytes of containers) hang on `root`, code and types left out."""
    seen, todo, bytes_ = set(), [root], 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType, FunctionType, BuiltinFunctionType)):
            continue
        seen.add(id(each))
        bytes_ += sys.getsizeof(each)
        todo += gc.get_referents(each)
    return len(seen), bytes_


def test_memory_of_the_policy_stays_flat():
    """T15, at a smaller scale: unique prompts and session keys cost nothing after the bounds are reached."""
    ledger, rng = Ledger(), Random(8)
    candidates = [Candidate(ledger.account(f"r{n}"), 1000) for n in range(8)]
    chooser = ExpectedWait(ledger, rng, most_entries=4_000)

    def send(first, count):
        for number in range(first, first + count):
            ask = chat(tuple(rng.getrandbits(64) for _ in range(6)), 10.0, rng.getrandbits(64))
            decision = chooser.choose(candidates, number / 50, ask)
            decision.entry.settle(decision.entry.charged_mmu)
            chooser.settled(decision, ask, number / 50 + 0.2, 0.0)

    send(0, 12_000)
    objects, bytes_ = reachable(chooser)
    send(12_000, 8_000)
    more_objects, more_bytes = reachable(chooser)
    assert objects > 8_000, "what is kept is seen"
    assert more_objects <= 1.01 * objects
    assert more_bytes - bytes_ <= 80_000, "1 MB per 100,000 prompts"
    assert ledger.by_replica() == dict.fromkeys(ledger.by_replica(), 0)
