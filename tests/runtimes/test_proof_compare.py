"""What counts as the same output, and how a difference is told."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.runtimes.proof.compare import Tally, compare, difference, tolerance_of
from steelyard.runtimes.proof.outcome import Outcome, split_rows

DOUBLE = tolerance_of(64)

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
outputs = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
)


@given(outputs)
def test_every_output_equals_its_copy(output: Any):
    assert difference(output, copy.deepcopy(output), DOUBLE) is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=40), st.data())
def test_one_float_beyond_the_tolerance_is_one_row_that_differs(floats: list[float], data: st.DataObject):
    place = data.draw(st.integers(0, len(floats) - 1))
    factor = data.draw(st.floats(1.01, 1e6))
    changed = list(floats)
    changed[place] += (DOUBLE.atol + DOUBLE.rtol * abs(floats[place])) * factor
    found = compare(Outcome(floats), Outcome(changed), len(floats))
    assert [item.kind for item in found] == ["float"]


@given(st.lists(st.floats(), min_size=1, max_size=40), st.floats(-0.9, 0.9))
def test_floats_within_the_tolerance_are_equal(floats: list[float], share: float):
    near = [
        x + share * (DOUBLE.atol + DOUBLE.rtol * abs(x)) if math.isfinite(x) and abs(x) < 1e300 else x for x in floats
    ]
    assert compare(Outcome(floats), Outcome(near), len(floats)) == []


@settings(max_examples=50)
@given(outputs, outputs)
def test_difference_is_found_whichever_output_is_the_reference(one: Any, other: Any):
    # with exact tolerance the relation is symmetric
    exact = tolerance_of(64).__class__(0.0, 0.0)
    assert (difference(one, other, exact) is None) == (difference(other, one, exact) is None)


@pytest.mark.parametrize(
    ("expected", "got", "told"),
    [
        ([1, 0], [1, 1], "label 1 instead of 0"),
        ([True], [1], "int instead of bool"),
        ([1], [1.0], "float instead of int"),
        ([None], [math.nan], "float instead of null"),
        ([math.nan], [1.0], "a finite float instead of NaN"),
        ([math.inf], [-math.inf], "infinity instead of infinity"),
        ([1.0], [1.0012], "float off by 1.2e-3"),
        ([1000.0], [1001.2], "float off by 1.2e-3"),
        (["secret"], ["another secret"], "another text"),
        ([[1.0, 2.0]], [[1.0]], "1 values instead of 2"),
        ([{"a": 1}], [{"b": 1}], "other fields"),
    ],
)
def test_a_difference_is_told_by_kind_and_size(expected, got, told):
    tally = Tally()
    tally.add(len(expected), compare(Outcome(expected), Outcome(got), len(expected)))
    assert tally.describe() == f"1 of {len(expected)} rows differ: {told}"


@pytest.mark.parametrize("count", [2, 30])
def test_a_difference_behind_equal_infinities_is_found_in_long_and_short_lists(count):
    one, other = [math.nan, math.inf] + [1.0] * count, [math.nan, math.inf] + [1.0] * (count - 1) + [2.0]
    assert difference(one, other, DOUBLE) is not None
    assert difference([one, one], [one, other], DOUBLE) is not None
    assert len(compare(Outcome([one, one]), Outcome([one, other]), 2)) == 1
    assert difference(one, list(one), DOUBLE) is None


def test_the_tolerance_follows_the_reference_s_dtype():
    assert compare(Outcome([1.0], 32), Outcome([1.000001], 64), 1) == []
    assert len(compare(Outcome([1.0], 64), Outcome([1.000001], 32), 1)) == 1


def test_a_table_is_compared_by_row():
    one = Outcome({"label": [1, 0, 1], "score": [0.1, 0.2, 0.3]})
    other = Outcome({"label": [1, 1, 1], "score": [0.1, 0.2, 0.4]})
    assert [str(item) for item in compare(one, other, 3)] == ["label 1 instead of 0", "float off by 1e-1"]


def test_an_output_without_rows_differs_for_all_of_them():
    assert len(compare(Outcome({"mean": 1.0}), Outcome({"mean": 2.0}), 5)) == 5
    assert compare(Outcome({"mean": 1.0}), Outcome({"mean": 1.0}), 5) == []


def test_refusals_must_be_shared_but_not_their_names():
    refused = Outcome(None, error="ValueError")
    assert compare(refused, Outcome(None, error="BadRequest"), 2) == []
    assert [str(item) for item in compare(refused, Outcome([1, 1]), 2)] == ["answered what the model refuses"] * 2
    assert [str(item) for item in compare(Outcome([1]), refused, 1)] == ["ValueError instead of an answer"]


def test_rows_are_split_from_lists_tables_and_nothing_else():
    assert split_rows([1, 2], 2) == [1, 2]
    assert split_rows({"a": [1, 2], "b": [3, 4]}, 2) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
    assert split_rows([1, 2], 3) is None
    assert split_rows({"a": [1, 2], "b": 3}, 2) is None
    assert split_rows("ab", 2) is None
