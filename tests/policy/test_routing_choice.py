"""Weigh where costs differ, count where they do not; and the choice does not flip by itself."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.expected_wait import ExpectedWait
from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Ask, Candidate, LeastInTurn, Reason
from steelyard.policy.routing_choice import FEWEST, CostSpread, WeighOrCount
from steelyard.policy.units import GUESS, Features


def fleet(count=4, limit=1000):
    ledger, rng = Ledger(), Random(1)
    chooser = WeighOrCount(ExpectedWait(ledger, rng), LeastInTurn(ledger, rng))
    return [Candidate(ledger.account(f"r{number}"), limit) for number in range(count)], chooser


def serve(chooser, candidates, ask):
    decision = chooser.choose(candidates, 0.0, ask)
    decision.entry.settle(decision.entry.charged_mmu)
    chooser.settled(decision, ask, 1.0, None)
    return decision.reason


def chat(input_tokens, output_tokens=10.0, blocks=()):
    return Ask(Features(input_tokens=input_tokens, output_tokens=output_tokens), GUESS, blocks, 16.0)


def test_uniform_requests_are_counted():
    candidates, chooser = fleet()
    row = Ask(Features(rows=1), GUESS)
    assert {serve(chooser, candidates, row) for _ in range(FEWEST)} == {Reason.SOONEST}
    assert {serve(chooser, candidates, row) for _ in range(50)} == {Reason.LEAST_BUSY}


def test_what_is_learnt_of_answers_is_no_difference_between_requests():
    """All take 100 tokens to answer; 1,000 were feared at first."""
    candidates, chooser = fleet()
    for number in range(60):
        thought = chat(100, 1000.0 if number < 30 else 100.0)
        decision = chooser.choose(candidates, 0.0, thought)
        decision.entry.settle(chat(100, 100.0).mmu)
        chooser.settled(decision, thought, 1.0, None)
    assert chooser.spread.variation() == pytest.approx(0.0, abs=1e-6)
    assert not chooser.weighs


def test_what_was_found_in_a_cache_is_no_difference_between_requests():
    candidates, chooser = fleet()
    blocks = (1, 2)
    for number in range(60):
        cached = 16.0 * (number % 3)
        ask = chat(32, 500, blocks)
        decision = chooser.choose(candidates, 0.0, ask)
        decision.entry.settle(ask.mmu_after(cached))
        chooser.settled(decision, ask, 1.0, cached)
    assert not chooser.weighs


def test_failed_attempts_teach_nothing():
    candidates, chooser = fleet()
    for _ in range(3 * FEWEST):
        decision = chooser.choose(candidates, 0.0, chat(100))
        decision.entry.settle()
        chooser.settled(decision, chat(100), 1.0, None)
    assert chooser.weighs
    assert chooser.spread.variation() is None


def test_requests_that_differ_are_weighed():
    candidates, chooser = fleet()
    rng = Random(2)
    for _ in range(50):
        serve(chooser, candidates, chat(rng.expovariate(1 / 500), rng.expovariate(1 / 100)))
    assert chooser.weighs
    assert serve(chooser, candidates, chat(100)) is Reason.SOONEST


def test_what_could_be_cached_counts_also_while_all_of_it_is_missed():
    """Prompts of one length, each a session of its own: whoever counts would spread them and lose their caches."""
    candidates, chooser = fleet()
    for number in range(300):
        serve(chooser, candidates, chat(1600, 20, tuple(hash((number, n)) for n in range(100))))
    assert chooser.weighs


def test_prefixes_that_hardly_save_anything_are_counted():
    candidates, chooser = fleet()
    for number in range(300):
        serve(chooser, candidates, chat(32, 500, (hash(number), hash((number, 1)))))
    assert not chooser.weighs


def test_the_choice_follows_the_traffic_both_ways():
    candidates, chooser = fleet()
    rng = Random(3)
    told = []
    for phase in range(4):
        for _ in range(3000):
            serve(chooser, candidates, chat(100, 10 if phase % 2 else rng.choice([1, 300])))
        told.append(chooser.weighs)
    assert told == [True, False, True, False]


def test_costs_between_the_bounds_do_not_flip_the_choice():
    candidates, chooser = fleet()
    rng = Random(4)
    flips, before = 0, chooser.weighs
    for _ in range(5000):
        serve(chooser, candidates, chat(0, rng.uniform(50, 115)))  # a variation of about 0.23
        flips += chooser.weighs is not before
        before = chooser.weighs
    assert flips <= 3


def test_a_request_that_waits_counts_once():
    candidates, chooser = fleet(1, limit=1)
    rng = Random(5)
    for _ in range(60):
        ask = chat(0, rng.choice([1, 300]))
        running = chooser.choose(candidates, 0.0, ask)
        for _ in range(100):
            assert chooser.choose(candidates, 0.0, chat(0, 1)) is None
        running.entry.settle(ask.mmu)
        chooser.settled(running, ask, 1.0, None)
    assert chooser.spread.variation() > 0.5


@given(st.lists(st.integers(0, 10**12), max_size=150))
def test_the_variation_is_that_of_the_costs(costs):
    spread = CostSpread()
    for cost in costs:
        spread.add(cost)
    mean = sum(costs) / max(1, len(costs))
    if not mean or len(costs) < FEWEST:
        assert spread.variation() is None
    else:
        deviation = (sum((cost - mean) ** 2 for cost in costs) / len(costs)) ** 0.5
        assert spread.variation() == pytest.approx(deviation / mean, rel=1e-3, abs=1e-3)
