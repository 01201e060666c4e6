"""Representable numbers are counted in their order, and neighbours are found among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.runtimes.proof.numbers import from_ordinal, halfway, middle, near, ordinal

DTYPES = [np.dtype(name) for name in ("float16", "float32", "float64", "int8", "uint16", "int32", "int64")]


def numbers(dtype: np.dtype) -> st.SearchStrategy:
    if dtype.kind == "f":
        return st.floats(width=dtype.itemsize * 8, allow_nan=False, allow_infinity=False)
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(st.data())
def test_ordinals_keep_the_order_and_come_back(dtype: np.dtype, data: st.DataObject):
    values = np.array(data.draw(st.lists(numbers(dtype), min_size=2, max_size=2)), dtype=dtype)
    places = ordinal(values)
    assert np.array_equal(from_ordinal(places, dtype), values)
    assert (places[0] < places[1]) == (values[0] < values[1])
    between = halfway(places[:1], places[1:], dtype)
    assert min(places) <= between[0] <= max(places)
    assert min(places) <= middle(places[:1], places[1:])[0] <= max(places)


@given(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100))
def test_the_next_ordinal_is_the_next_float(value: float):
    for dtype in (np.float32, np.float64):
        one = np.array([value], dtype=dtype)
        assert from_ordinal(ordinal(one) + 1, one.dtype)[0] == np.nextafter(one, dtype(np.inf))[0]


def test_beside_a_double_lie_its_float32_rounding_and_that_one_s_neighbours():
    beside = near(np.array([0.1]), (0, 1))[0]
    single = np.float32(0.1)
    assert beside.tolist() == [
        0.1,
        np.nextafter(0.1, 1),
        *(float(x) for x in (np.nextafter(single, np.float32(0)), single, np.nextafter(single, np.float32(1)))),
    ]


def test_the_extremes_have_no_neighbours_beyond():
    largest = np.finfo(np.float64).max
    assert near(np.array([largest]), (0, 4)).max() == largest
    assert near(np.array([127], dtype=np.int8), (0, 4)).tolist() == [[127, 127]]
