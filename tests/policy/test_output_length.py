"""Expected output lengths: learnt per tenant, bounded in memory, following what changes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.output_length import MOST_TENANTS, UNKNOWN_TOKENS, OutputLengths


def learnt(lengths, tenant="a", **options):
    known = OutputLengths(**options)
    for tokens in lengths:
        known.learn(tenant, tokens)
    return known


def test_before_anything_is_learnt_the_limit_or_a_guess_stands():
    known = OutputLengths()
    assert known.estimate("a", None) == UNKNOWN_TOKENS
    assert known.estimate("a", 16) == 16


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 20_000), min_size=30, max_size=300), st.floats(0.05, 0.95))
def test_the_estimate_is_the_quantile_to_within_a_bin(lengths, quantile):
    estimate = learnt(lengths, quantile=quantile, half_life=1e9).estimate("a", None)
    ordered = sorted(lengths)
    below = sum(length < estimate / 1.2 - 1 for length in ordered) / len(ordered)
    above = sum(length > estimate * 1.2 + 1 for length in ordered) / len(ordered)
    assert below <= quantile + 17 / len(lengths)  # up to 16 answers may be newer than the quantile
    assert above <= 1 - quantile + 17 / len(lengths)


@given(st.lists(st.integers(0, 10**7), max_size=50), st.one_of(st.none(), st.integers(1, 10**6)))
def test_an_estimate_is_never_above_the_limit_nor_below_zero(lengths, limit):
    estimate = learnt(lengths).estimate("a", limit)
    assert estimate >= 0
    assert limit is None or estimate <= limit


def test_each_tenant_has_its_own_and_a_new_one_starts_from_the_endpoints():
    known = OutputLengths()
    for _ in range(300):
        known.learn("brief", 8)
        known.learn("verbose", 1000)
    assert known.estimate("brief", None) < 12
    assert 900 < known.estimate("verbose", None) < 1200
    assert known.estimate("new", None) > 500  # the endpoint's 0.7 quantile
    known.learn("new", 8)
    assert known.estimate("new", None) > 100  # one answer does not overturn what is known of all


def test_old_answers_fade():
    known = learnt([10] * 2000 + [500] * 1500, half_life=300)
    assert known.estimate("a", None) > 400


def test_a_very_long_life_keeps_its_numbers_finite():
    known = learnt([100] * 200_000, half_life=50)  # weights pass 1e100 many times
    assert 90 < known.estimate("a", None) < 130


def test_the_tenants_are_bounded_and_the_longest_silent_is_forgotten():
    known = OutputLengths(most_tenants=3)
    for tenant, tokens in (("a", 5), ("b", 5), ("c", 5), ("a", 5), ("d", 5)):
        for _ in range(50):
            known.learn(tenant, tokens)
    assert known.tenants == 3
    rng = random.Random(1)
    many = OutputLengths()
    for _ in range(3 * MOST_TENANTS):
        many.learn(str(rng.random()), 10)
    assert many.tenants == MOST_TENANTS


@pytest.mark.parametrize("options", [{"quantile": 0}, {"quantile": 1}, {"half_life": 0}, {"most_tenants": 0}])
def test_senseless_parameters_are_refused(options):
    with pytest.raises(ValueError, match="quantile"):
        OutputLengths(**options)
