"""One formula: a prefix is worth the seconds that it saves, a queue costs the seconds that it takes."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.affinity import WINDOW_S
from steelyard.policy.expected_wait import LOOK_AT_ALL, ExpectedWait
from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Ask, Candidate, Reason
from steelyard.policy.units import GUESS, Features

BLOCK_TOKENS = 16.0


def fleet(count, limit=1000, seed=1, **options):
    ledger = Ledger()
    candidates = [Candidate(ledger.account(f"r{number}"), limit) for number in range(count)]
    return ledger, candidates, ExpectedWait(ledger, Random(seed), **options)


def chat(name, length=20, shared=0, output=10.0, key=None):
    parts = [f"shared {n}" for n in range(shared)] + [f"{name} {n}" for n in range(length - shared)]
    blocks = tuple(hash(tuple(parts[: n + 1])) & (2**64 - 1) for n in range(length))
    return Ask(Features(input_tokens=length * BLOCK_TOKENS, output_tokens=output), GUESS, blocks, BLOCK_TOKENS, key)


def serve(chooser, candidates, ask, now_s=0.0, cached_tokens=None):
    """A request on its own, from choice to settlement; the replica that served it."""
    decision = chooser.choose(candidates, now_s, ask)
    decision.entry.settle(decision.entry.charged_mmu)
    chooser.settled(decision, ask, now_s + 0.1, cached_tokens)
    return decision


@given(st.integers(1, 40), st.integers(0, 4), st.integers(0, 120), st.integers(0, 2**32), st.booleans())
def test_a_decision_is_charged_and_never_exceeds_a_limit(count, limit, arrivals, seed, keyed):
    ledger, candidates, chooser = fleet(count, limit, seed)
    charged = 0
    for number in range(arrivals):
        ask = chat(f"x{number % 9}", 12, 6, key=number % 5 if keyed else None)
        decision = chooser.choose(candidates, 0.0, ask)
        if decision is None:
            assert all(candidate.account.in_flight == limit for candidate in candidates)
            break
        charged += decision.entry.charged_mmu
        assert decision.entry.account is decision.replica.account
        assert decision.entry.charged_mmu == ask.mmu_after(decision.cached_tokens)
    assert ledger.outstanding_mmu == ledger.charged_total_mmu == charged
    assert ledger.in_flight == min(arrivals, count * limit)


def test_the_same_seed_decides_the_same():
    def run(seed):
        _, candidates, chooser = fleet(50, seed=seed)
        asks = [chat(f"x{number % 60}", 20, 10, key=number % 7 or None) for number in range(300)]
        return [serve(chooser, candidates, ask, float(n)).replica.account.replica for n, ask in enumerate(asks)]

    assert run(5) == run(5) != run(6)


@pytest.mark.parametrize("count", [3, 40])
def test_a_prefix_is_worth_what_it_saves(count):
    _, candidates, chooser = fleet(count)
    first = serve(chooser, candidates, chat("a"))
    again = serve(chooser, candidates, chat("a"))
    assert (again.replica, again.cached_tokens) == (first.replica, 20 * BLOCK_TOKENS)
    saved_mmu = chat("a").mmu - again.entry.charged_mmu
    first.replica.account.outstanding_mmu = saved_mmu - 1
    stays = chooser.choose(candidates, 0.0, chat("a"))
    assert stays.replica is first.replica
    stays.entry.settle()
    first.replica.account.outstanding_mmu = saved_mmu + 1
    assert chooser.choose(candidates, 0.0, chat("a")).replica is not first.replica


@pytest.mark.parametrize("others", [1, 4, 10])
def test_who_recomputes_a_prefix_pays_for_those_it_delays(others):
    """Two replicas with as many in flight: one has the prefix and a longer backlog, the other would compute it anew."""
    _, candidates, chooser = fleet(2)
    home = serve(chooser, candidates, chat("a")).replica
    other = candidates[1] if home is candidates[0] else candidates[0]
    ledger = chooser._ledger
    held = [ledger.charge(replica.account, 10_000) for replica in (home, other) for _ in range(others)]
    ask = chat("a")
    saved_mmu = ask.mmu - ask.mmu_after(20 * BLOCK_TOKENS)
    worth_mmu = saved_mmu * (1 + others)
    for more_mmu, expected in ((worth_mmu - 2, home), (worth_mmu + 2, other)):
        backlog = ledger.charge(home.account, 0)
        ledger.charge(other.account, 0).settle()
        backlog.raise_to(more_mmu)
        home.account.in_flight -= 1  # the backlog alone, as if the requests there were longer
        decision = chooser.choose(candidates, 0.0, ask)
        assert decision.replica is expected
        decision.entry.settle()
        home.account.in_flight += 1
        backlog.settle()
    assert not any(entry.settled for entry in held)


def test_answers_delay_the_next_request_less_than_prompts_do():
    _, candidates, chooser = fleet(2)
    ledger = chooser._ledger
    ask = chat("a", output=100.0)
    first = chooser.choose(candidates, 0.0, ask)
    second = chooser.choose(candidates, 0.0, chat("b", output=100.0))
    assert second.replica is not first.replica
    first.entry.begin_answer()  # as much is left of both, but this one reads its prompt no more
    for _ in range(3):
        ledger.charge(first.replica.account, 0, 0).settle()
    assert chooser.choose(candidates, 0.0, chat("c")).replica is first.replica


@pytest.mark.parametrize("count", [4, LOOK_AT_ALL])
def test_those_that_tie_take_turns_and_routers_begin_with_others(count):
    def turns(seed):
        _, candidates, chooser = fleet(count, seed=seed)
        return [serve(chooser, candidates, chat(f"x{n}", 4)).replica.account.replica for n in range(3 * count)]

    for seed in range(5):
        names = turns(seed)
        assert len(set(names[:count])) == count
        assert names[:count] == names[count : 2 * count] == names[2 * count :]
    assert len({turns(seed)[0] for seed in range(20)}) > 1


@pytest.mark.parametrize("seed", range(10))
def test_a_burst_with_one_cached_prefix_spreads_evenly(seed):
    """T7: 8 idle replicas, all with the prefix, 64 arrivals at once."""
    _, candidates, chooser = fleet(8, seed=seed)
    ask = chat("a")
    chooser.choose(candidates, 0.0, ask).entry.settle()
    for candidate in candidates:
        chooser.prefixes.confirm(chooser.prefixes.cache(candidate.account.replica), ask.blocks, 0.0)
    for _ in range(64):
        assert chooser.choose(candidates, 1.0, ask).cached_tokens
    loads = [candidate.account.in_flight for candidate in candidates]
    assert max(loads) - min(loads) <= 1


def test_misses_go_to_the_idle_replica_however_much_it_holds():
    """T11: A is busy with heavy prompts of its own, B idle with a large tree."""
    _, (a, b), chooser = fleet(2)
    candidates = (a, b)
    chooser.choose(candidates, 0.0, chat("probe")).entry.settle()
    for number in range(300):
        chooser.prefixes.confirm(chooser.prefixes.cache("r1"), chat(f"old {number}").blocks, 0.0)
    busy = [chooser._ledger.charge(a.account, 400_000) for _ in range(20)]
    for number in range(50):
        assert serve(chooser, candidates, chat(f"new {number}"), 1.0).replica is b
    assert all(not entry.settled for entry in busy)


def test_one_at_a_time_distinct_prompts_use_all_replicas():
    """T11: concurrency 1, 400 distinct prompts, 4 replicas: 25 ± 5 % each."""
    _, candidates, chooser = fleet(4)
    counts = Counter(
        serve(chooser, candidates, chat(f"x{number}"), number / 10).replica.account.replica for number in range(400)
    )
    assert all(80 <= counts[f"r{number}"] <= 120 for number in range(4)), counts


def test_a_key_stays_at_home_also_where_nothing_is_known_of_its_prefix():
    """Another router served the turns before: only the key tells."""
    _, candidates, chooser = fleet(6)
    serve(chooser, candidates, chat("warm-up"))
    for key in range(40):
        (home,) = chooser.slices.subset(key)
        decision = serve(chooser, candidates, chat(f"x{key}", key=key))
        assert (decision.replica, decision.reason) == (candidates[home], Reason.AT_HOME)


def test_a_key_leaves_home_only_where_that_saves_more_than_it_costs():
    _, candidates, chooser = fleet(6)
    serve(chooser, candidates, chat("warm-up"))
    (home,) = chooser.slices.subset(77)
    ask = chat("x", key=77)
    account = candidates[home].account
    for number, candidate in enumerate(candidates):
        candidate.account.outstanding_mmu = 0 if number == home else 1_000
    computed_mmu = ask.mmu - ask.least_mmu
    account.outstanding_mmu = 1_000 + computed_mmu - 1
    stays = chooser.choose(candidates, 0.0, ask)
    assert stays.replica is candidates[home]
    stays.entry.settle()
    chooser.settled(stays, ask, 0.0, None)
    account.outstanding_mmu = 1_000 + computed_mmu + 1
    assert chooser.choose(candidates, 0.0, ask).reason is Reason.SPILLED


def test_a_key_that_moved_does_not_go_back_and_forth():
    """Home was busy for a moment; from then on both hold its prefix, and small differences move nothing twice."""
    _, candidates, chooser = fleet(6)
    serve(chooser, candidates, chat("warm-up"))
    (home,) = chooser.slices.subset(77)
    serve(chooser, candidates, chat("x", 20, key=77))
    candidates[home].account.outstanding_mmu = 10**6
    moved = serve(chooser, candidates, chat("x", 24, key=77), 1.0)
    assert moved.reason is Reason.SPILLED
    candidates[home].account.outstanding_mmu = 0
    replicas = [serve(chooser, candidates, chat("x", 32, key=77), 2.0 + n).replica for n in range(10)]
    assert len({replica.account.replica for replica in replicas}) == 1


def test_what_moves_from_a_hot_replica_is_its_overflow_only():
    """T13: A is at its limit, B to D are not: their sessions stay where they are."""
    _, candidates, chooser = fleet(4)
    keys = range(200)
    homes = {}
    for key in keys:
        homes[key] = serve(chooser, candidates, chat(f"x{key}", 40, 10, key=key), 0.0).replica
    loads = (950_000, 400_000, 400_000, 400_000)
    for candidate, load_mmu in zip(candidates, loads, strict=True):
        candidate.account.outstanding_mmu = load_mmu
    hot = candidates[0]
    stayed = {True: 0, False: 0}
    for key in keys:
        decision = serve(chooser, candidates, chat(f"x{key}", 44, 10, key=key), 1.0)
        stayed[homes[key] is hot] += decision.replica is homes[key]
        if homes[key] is not hot:
            assert decision.cached_tokens == 40 * BLOCK_TOKENS
    others = sum(home is not hot for home in homes.values())
    assert stayed[False] == others
    assert stayed[True] == 0, "half a second of waiting is more than its prefill costs"


def test_a_hot_key_is_served_by_as_many_replicas_as_it_fills():
    _, candidates, chooser = fleet(40)
    served = Counter()
    for step in range(int(4 * WINDOW_S * 10)):
        now_s = step / 10
        running = [chooser.choose(candidates, now_s, chat("hot", key=7, output=100.0)) for _ in range(1)]
        for decision in running:
            served[decision.replica.account.replica] += 1
            decision.entry.settle(decision.entry.charged_mmu)
            chooser.settled(decision, chat("hot", key=7, output=100.0), now_s + 0.05, None)
    rate_mmu_s = chat("hot", output=100.0).mmu_after(320) * 10
    part = chooser.slices.find(7)
    assert part.size == pytest.approx(rate_mmu_s / 700_000, abs=1.1) == pytest.approx(3, abs=1.1)
    assert sum(count for _, count in served.most_common(part.size)) >= 0.9 * sum(served.values())


@pytest.mark.parametrize("count", [5, 60])
def test_a_dead_replica_is_replaced_at_once_and_its_credit_gone(count):
    """T38: sessions of a replica that leaves move to the next of their ranking, the others stay."""
    _, candidates, chooser = fleet(count)
    homes = {key: serve(chooser, candidates, chat(f"x{key}", key=key)).replica for key in range(150)}
    gone = homes[0]
    left = [candidate for candidate in candidates if candidate is not gone]
    for key, home in homes.items():
        decision = serve(chooser, left, chat(f"x{key}", key=key), 1.0)
        if home is gone:
            assert decision.cached_tokens == 0
        else:
            assert decision.replica is home
    again = [*left, Candidate(gone.account, 1000)]  # it restarted under its name, and holds nothing
    chooser.learn(again, {}, 2.0)
    assert chooser.prefixes.cache(gone.account.replica).used == {}


def test_a_marked_home_is_stood_in_for_by_the_same_standby_each_time():
    _, candidates, chooser = fleet(30)
    serve(chooser, candidates, chat("warm-up"))
    ranking = chooser.slices.ranking(chooser.slices.find(5))
    candidates[ranking[0]].mark.put(1.0, 5.0, "test")
    for _ in range(5):
        decision = serve(chooser, candidates, chat("x", key=5), 1.5)
        assert (decision.replica, decision.reason) == (candidates[ranking[1]], Reason.AT_HOME)


def test_a_flushed_replica_has_no_credit():
    _, candidates, chooser = fleet(3)
    served = serve(chooser, candidates, chat("a"))
    chooser.flush(served.replica.account.replica)
    assert serve(chooser, candidates, chat("a"), 1.0).cached_tokens == 0


def test_reports_of_less_than_was_believed_lower_the_credit():
    _, candidates, chooser = fleet(1)
    ask = chat("a")
    for step in range(30):
        serve(chooser, candidates, ask, float(step), cached_tokens=0.0)
    assert chooser.choose(candidates, 30.0, ask).cached_tokens < 0.1 * ask.features.input_tokens


def test_a_failed_attempt_leaves_no_credit_and_no_speed():
    _, candidates, chooser = fleet(4)
    decision = chooser.choose(candidates, 0.0, chat("a"))
    decision.entry.settle()
    chooser.settled(decision, chat("a"), 0.001, None)
    assert chooser.choose(candidates, 0.0, chat("a")).cached_tokens == 0
    assert all(candidate.speed == 1.0 for candidate in candidates)


def test_an_attempt_that_outlives_its_replica_is_forgotten():
    _, candidates, chooser = fleet(3)
    decision = chooser.choose(candidates, 0.0, chat("a"))
    left = [candidate for candidate in candidates if candidate is not decision.replica]
    chooser.choose(left, 0.0, chat("b"))
    decision.entry.settle(5)
    chooser.settled(decision, chat("a"), 1.0, 0.0)
    assert decision.replica.account.replica not in chooser.prefixes.replicas()


def test_a_list_whose_members_were_exchanged_in_place_is_noticed():
    ledger, candidates, chooser = fleet(2)
    serve(chooser, candidates, chat("a"))
    for number in range(2):
        candidates[number] = Candidate(ledger.account(f"new{number}"), 1000)
    decision = chooser.choose(candidates, 0.0, chat("a"))
    assert decision.cached_tokens == 0
    assert sorted(chooser.prefixes.replicas()) == ["new0", "new1"]


def test_a_new_router_begins_with_what_another_knew():
    """T38: from a summary at once, with all of the warm hit rate."""
    _, candidates, chooser = fleet(4)
    homes = {n: serve(chooser, candidates, chat(f"x{n}"), float(n)).replica.account.replica for n in range(100)}
    _, fresh_candidates, fresh = fleet(4, seed=9)
    fresh.learn(fresh_candidates, chooser.summary(100.0, 10_000), 5.0)
    found = [serve(fresh, fresh_candidates, chat(f"x{n}"), 6.0) for n in range(100)]
    assert [decision.replica.account.replica for decision in found] == list(homes.values())
    assert all(decision.cached_tokens for decision in found)


@pytest.mark.parametrize("count", [LOOK_AT_ALL + 1, 200])
def test_free_replicas_are_found_even_when_all_that_are_looked_at_are_full(count):
    _, candidates, chooser = fleet(count, limit=1)
    taken = {chooser.choose(candidates, 0.0, chat("a", key=3)).replica.account.replica for _ in range(count)}
    assert len(taken) == count
    assert chooser.choose(candidates, 0.0, chat("a", key=3)) is None


def test_nobody_to_choose_from_is_no_decision():
    _, _, chooser = fleet(0)
    assert chooser.choose([], 0.0, chat("a", key=1)) is None
