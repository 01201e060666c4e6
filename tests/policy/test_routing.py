from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Ask, Candidate, LeastInTurn, LeastRequests, PowerOfTwoChoices, Reason, RoundRobin
from steelyard.policy.units import GUESS, Features, LinearCost, Term

FLAT = Ask(Features(), LinearCost({Term.REQUEST: 0.003}))


def fleet(count, limit=1000):
    ledger = Ledger()
    return ledger, [Candidate(ledger.account(f"r{i}"), limit) for i in range(count)]


def choosers(ledger, seed=1):
    rngs = [Random(seed) for _ in range(3)]
    return [
        PowerOfTwoChoices(ledger, rngs[0]),
        LeastRequests(ledger, rngs[1]),
        LeastInTurn(ledger, rngs[2]),
        RoundRobin(ledger),
    ]


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 200), st.integers(0, 2**32))
def test_a_decision_is_charged_and_never_exceeds_a_limit(count, limit, arrivals, seed):
    for make in range(4):
        ledger, candidates = fleet(count, limit)
        chooser = choosers(ledger, seed)[make]
        taken = 0
        for _ in range(arrivals):
            decision = chooser.choose(candidates, 0.0, FLAT)
            if decision is None:
                assert all(candidate.account.in_flight == limit for candidate in candidates)
                break
            taken += 1
            assert decision.entry.account is decision.replica.account
        assert ledger.in_flight == taken == min(arrivals, count * limit)
        assert ledger.outstanding_mmu == 3 * taken


@pytest.mark.parametrize("seed", range(20))
def test_a_burst_in_one_instant_spreads_evenly_over_idle_replicas(seed):
    ledger, candidates = fleet(8)
    chooser = PowerOfTwoChoices(ledger, Random(seed))
    for _ in range(64):
        chooser.choose(candidates, 0.0, FLAT)
    loads = [candidate.account.in_flight for candidate in candidates]
    assert max(loads) - min(loads) <= 1


def test_two_choices_over_many_replicas_stay_far_better_than_random():
    ledger, candidates = fleet(100)
    chooser = PowerOfTwoChoices(ledger, Random(7))
    reasons = Counter(chooser.choose(candidates, 0.0, FLAT).reason for _ in range(1000))
    assert max(candidate.account.in_flight for candidate in candidates) <= 14
    assert reasons == {Reason.LESS_BUSY: 1000}


def test_ties_are_broken_at_random_and_repeatably():
    def firsts(seed):
        ledger, candidates = fleet(4)
        chooser = PowerOfTwoChoices(ledger, Random(seed))
        result = []
        for _ in range(400):
            decision = chooser.choose(candidates, 0.0, FLAT)
            result.append(candidates.index(decision.replica))
            decision.entry.settle()
        return result

    assert firsts(3) == firsts(3)
    counts = Counter(firsts(3))
    assert all(70 <= counts[index] <= 130 for index in range(4))


@pytest.mark.parametrize("count", [5, 40])
def test_equal_replicas_take_turns_and_routers_begin_with_others(count):
    def turns(seed):
        ledger, candidates = fleet(count)
        chooser = LeastInTurn(ledger, Random(seed))
        decisions = [chooser.choose(candidates, 0.0, FLAT) for _ in range(2 * count)]
        return [candidates.index(decision.replica) for decision in decisions]

    for seed in range(5):
        assert sorted(turns(seed)[:count]) == list(range(count))
        assert turns(seed)[:count] == turns(seed)[count:]
    assert len({turns(seed)[0] for seed in range(20)}) > 1


def test_who_was_passed_over_is_next_and_answers_count_a_quarter():
    ledger, candidates = fleet(3)
    chooser = LeastInTurn(ledger, Random(1))
    first, second, third = (chooser.choose(candidates, 0.0, FLAT) for _ in range(3))
    second.entry.settle()
    third.entry.settle()
    assert chooser.choose(candidates, 0.0, FLAT).replica is second.replica
    first.entry.begin_answer()
    assert chooser.choose(candidates, 0.0, FLAT).replica is first.replica, "whoever only answers can read a prompt"


def test_a_marked_replica_gets_nothing_until_its_mark_expires():
    for make in range(4):
        ledger, candidates = fleet(2)
        chooser = choosers(ledger)[make]
        candidates[0].mark.put(10.0, 1.0, "test")
        for _ in range(10):
            assert chooser.choose(candidates, 10.5, FLAT).replica is candidates[1]
        candidates[1].mark.put(10.5, 1.0, "test")
        assert chooser.choose(candidates, 10.6, FLAT) is None
        assert chooser.choose(candidates, 11.0, FLAT).replica is candidates[0]


def test_free_replicas_are_found_even_when_the_two_drawn_are_full():
    ledger, candidates = fleet(50, limit=1)
    chooser = PowerOfTwoChoices(ledger, Random(1))
    assert {chooser.choose(candidates, 0.0, FLAT).replica.account.replica for _ in range(50)} == {
        f"r{i}" for i in range(50)
    }
    assert chooser.choose(candidates, 0.0, FLAT) is None


def test_nobody_to_choose_from_is_no_decision():
    ledger = Ledger()
    for chooser in choosers(ledger):
        assert chooser.choose([], 0.0, FLAT) is None


def test_what_is_cached_is_not_computed_and_nothing_becomes_negative():
    features = Features(input_tokens=100, image_tokens=50, output_tokens=10)
    ask = Ask(features, GUESS)
    assert ask.mmu == ask.mmu_after(0) == GUESS.mmu(features)
    assert ask.mmu_after(60) == GUESS.mmu(
        Features(input_tokens=40, image_tokens=50, output_tokens=10, cached_tokens=60)
    )
    assert ask.mmu_after(120) == GUESS.mmu(Features(image_tokens=30, output_tokens=10, cached_tokens=120))
    assert ask.mmu_after(150) == ask.mmu_after(10_000) == GUESS.mmu(Features(output_tokens=10, cached_tokens=150))
