"""Fitting a cost: known coefficients come back out of noise, and nothing is made up that was not seen."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.cost_fit import Observation, evaluate, fit, observation_of, predicted_s
from steelyard.policy.units import TERMS, Features, LinearCost, Term


def shapes(rng, count):
    """A mix's requests: one typical length each way, and some spread about it."""
    input_tokens, output_tokens = 10 ** rng.uniform(1, 3), 10 ** rng.uniform(0.5, 2.5)
    return [
        Features(input_tokens=input_tokens * rng.uniform(0.7, 1.3), output_tokens=output_tokens * rng.uniform(0.7, 1.3))
        for _ in range(count)
    ]


def observed(coefficients, rng, *, mixes=24, noise=0.0, requests=shapes):
    """Windows in which a replica of these costs (MU) was saturated."""
    cost = LinearCost(coefficients)
    found = []
    for number in range(mixes):
        window = observation_of(f"mix {number}", requests(rng, rng.randint(5, 40)), 1.0)
        seconds = predicted_s(cost, window) * max(0.1, rng.gauss(1, noise))
        found.append(Observation(window.mix, window.totals, seconds))
    return found


coefficients = st.fixed_dictionaries(
    {
        Term.REQUEST: st.floats(1, 30),
        Term.INPUT: st.floats(0.05, 2),
        Term.OUTPUT: st.floats(0.5, 20),
    }
)


@settings(deadline=None, max_examples=15)
@given(coefficients, st.integers(0, 1000))
def test_known_coefficients_come_back_from_exact_windows(known, seed):
    found = fit(observed(known, random.Random(seed)))
    for term, value in known.items():
        assert found.cost.coefficients[term] == pytest.approx(value, rel=1e-6)
    assert found.cross_validated.p95 < 1e-6
    assert found.inseparable == ()


@settings(deadline=None, max_examples=15)
@given(coefficients, st.integers(0, 1000))
def test_noisy_windows_predict_other_mixes_about_as_well_as_the_noise_allows(known, seed):
    rng = random.Random(seed)
    found = fit(observed(known, rng, noise=0.05))
    fresh = evaluate(found.cost, observed(known, rng, mixes=40))
    assert fresh.median < 0.06
    assert fresh.p95 < 0.15
    assert found.cost.uncertainty == found.cross_validated.median < 0.1


@settings(deadline=None, max_examples=10)
@given(coefficients, st.integers(0, 1000))
def test_a_few_spoilt_windows_do_not_bend_the_fit(known, seed):
    rng = random.Random(seed)
    windows = observed(known, rng, noise=0.02)
    for place in (3, 11):
        windows[place] = Observation(windows[place].mix, windows[place].totals, windows[place].seconds * 2)
    assert evaluate(fit(windows).cost, observed(known, rng, mixes=40)).median < 0.05


def test_costs_are_in_model_units():
    """A second of a saturated replica is 1,000 MU, whatever it did in it."""
    windows = [
        observation_of(f"{size}", [Features(rows=size)] * count, count * (0.001 + 0.0001 * size))
        for size, count in [(1, 100), (10, 50), (100, 20), (1000, 5)]
    ]
    cost = fit(windows).cost
    assert cost.coefficients == {Term.REQUEST: pytest.approx(1.0), Term.ROW: pytest.approx(0.1)}
    assert cost.mmu(Features(rows=10)) == 2000


def test_a_term_that_was_never_seen_has_no_coefficient():
    found = fit(observed({Term.REQUEST: 5, Term.INPUT: 0.2, Term.OUTPUT: 3}, random.Random(1)))
    assert {Term.IMAGE, Term.ROW, Term.CACHED} <= set(found.unseen)
    assert not {Term.IMAGE, Term.ROW, Term.CACHED} & set(found.cost.coefficients)


def test_shapes_that_vary_only_together_are_reported_and_nothing_is_made_up():
    def always_ten_to_one(rng, count):
        sizes = [rng.uniform(5, 200) for _ in range(count)]
        return [Features(input_tokens=10 * size, output_tokens=size) for size in sizes]

    found = fit(
        observed({Term.REQUEST: 5, Term.INPUT: 0.2, Term.OUTPUT: 3}, random.Random(2), requests=always_ten_to_one)
    )
    assert Term.INPUT in found.inseparable
    assert Term.INPUT not in found.cost.coefficients
    assert found.cost.coefficients[Term.OUTPUT] == pytest.approx(5, rel=0.01)  # its own and that of ten input tokens
    assert any("'input' never varied apart from 'output'" in note for note in found.notes)


def test_one_size_of_request_gives_a_price_per_request_alone():
    def all_alike(_, count):
        return [Features(rows=8)] * count

    found = fit(observed({Term.REQUEST: 1, Term.ROW: 0.5}, random.Random(3), requests=all_alike))
    assert found.inseparable == (Term.ROW,)
    assert found.cost.coefficients == {Term.REQUEST: pytest.approx(5)}


def test_terms_that_vary_nearly_together_are_noted():
    def nearly(rng, count):
        ratio = rng.uniform(0.9, 1.1)
        sizes = [rng.uniform(50, 500) for _ in range(count)]
        return [Features(input_tokens=size, output_tokens=ratio * size) for size in sizes]

    found = fit(observed({Term.INPUT: 1, Term.OUTPUT: 1}, random.Random(4), requests=nearly))
    assert any("'output' and 'input'" in note or "'input' and 'output'" in note for note in found.notes)


@pytest.mark.parametrize("term", [Term.CONTEXT, Term.ATTENTION])
def test_a_convex_term_is_taken_when_it_is_needed(term):
    known = {Term.REQUEST: 5, Term.INPUT: 0.2, Term.OUTPUT: 3, term: {Term.CONTEXT: 0.02, Term.ATTENTION: 0.001}[term]}
    taken = 0
    for seed in range(10):
        rng = random.Random(seed)
        found = fit(observed(known, rng, noise=0.03))
        taken += term in found.cost.coefficients
        assert evaluate(found.cost, observed(known, rng, mixes=40)).median < 0.10
    assert taken >= 9


def test_a_useless_convex_term_is_refused():
    taken = 0
    for seed in range(20):
        found = fit(observed({Term.REQUEST: 5, Term.INPUT: 0.2, Term.OUTPUT: 3}, random.Random(seed), noise=0.05))
        taken += Term.CONTEXT in found.cost.coefficients or Term.ATTENTION in found.cost.coefficients
    assert taken <= 2  # two standard errors, twice


def test_windows_of_one_mix_are_held_out_together():
    """A mix that only repeats itself says nothing about others."""
    found = fit([observation_of("a", [Features(rows=3)], 0.1), observation_of("a", [Features(rows=3)], 0.1)])
    assert found.cross_validated is None
    assert found.cost.uncertainty is None


def test_the_same_observations_give_the_same_fit():
    windows = observed({Term.REQUEST: 5, Term.INPUT: 0.2, Term.OUTPUT: 3}, random.Random(5), noise=0.05)
    assert fit(windows, seed=3).cost.coefficients == fit(windows, seed=3).cost.coefficients


def test_nothing_observed_is_an_error_and_empty_windows_count_for_nothing():
    empty = Observation("idle", (0.0,) * len(TERMS), 1.0)
    with pytest.raises(ValueError, match="no observation"):
        fit([empty])
    assert evaluate(LinearCost({Term.REQUEST: 1}), []) is None
