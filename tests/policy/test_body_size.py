"""How many rows or tokens a body holds is learnt from bodies whose number became known."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.body_size import BodySize


def test_until_something_is_learnt_a_unit_has_its_first_size():
    size = BodySize(4.0)
    assert size.estimate(400) == 100
    assert size.estimate(0) == 1


def test_bodies_that_are_all_alike_are_estimated_exactly():
    size = BodySize(100.0)
    for _ in range(3):
        size.learn(154, 1)
    assert size.estimate(154) == 1
    version = size.version
    size.learn(154, 1)
    assert size.version == version  # what was derived from it still holds


def test_names_of_columns_are_told_apart_from_rows():
    size, rng = BodySize(100.0), Random(1)
    for _ in range(200):
        rows = rng.choice((1, 5, 20, 1000))
        size.learn(180 + 21 * rows + rng.randrange(-3, 4), rows)
    for rows in (1, 10, 100, 10_000):
        assert size.estimate(180 + 21 * rows) == pytest.approx(rows, rel=0.1, abs=1)


def test_another_kind_of_body_is_learnt_within_a_few_hundred():
    size = BodySize(4.0)
    for tokens in range(1, 1000):
        size.learn(4 * tokens, tokens)
    for _ in range(3):
        for tokens in range(1, 1000, 2):
            size.learn(2 * tokens, tokens)
    assert size.estimate(1000) == pytest.approx(500, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 2**24), st.integers(0, 10**6)), max_size=40), st.integers(0, 2**24))
def test_whatever_is_reported_an_estimate_is_a_number_of_at_least_one(reports, body_bytes):
    size = BodySize(100.0)
    for report in reports:
        size.learn(*report)
    assert 1 <= size.estimate(body_bytes) <= 1 + 20 * 2**24
