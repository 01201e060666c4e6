"""Non-negative least squares, against scipy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.nnls import nnls


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 8), st.booleans())
def test_it_finds_as_good_a_solution_as_scipys(seed, rows, columns, positive):
    scipy_nnls = pytest.importorskip("scipy.optimize").nnls
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, columns)) * 10 ** rng.uniform(-3, 3, size=columns)
    matrix = np.abs(matrix) if positive else matrix
    target = rng.normal(size=rows) + positive
    solution = nnls(matrix, target)
    assert (solution >= 0).all()
    best = np.linalg.norm(matrix @ scipy_nnls(matrix, target)[0] - target)
    assert np.linalg.norm(matrix @ solution - target) <= best * (1 + 1e-6) + 1e-9


def test_dependent_columns_and_empty_ones_end_with_a_solution():
    matrix = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [3.0, 6.0, 0.0]])
    target = np.array([5.0, 10.0, 15.0])
    solution = nnls(matrix, target)
    assert (solution >= 0).all()
    assert np.allclose(matrix @ solution, target)


def test_nothing_to_choose_from():
    assert nnls(np.zeros((3, 0)), np.ones(3)).shape == (0,)
    assert nnls(np.zeros((2, 2)), np.ones(2)).tolist() == [0, 0]
