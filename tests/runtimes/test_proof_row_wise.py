"""Only a model that treats every row on its own may have requests share its calls."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.outcome import Outcome
from steelyard.runtimes.proof.row_wise import RowWise, prove_row_wise
from support.proofs import matrix_inputs, predicting

ROWS = matrix_inputs(np.random.default_rng(0).normal(size=(100, 3)))


def tried(predict) -> RowWise:
    return prove_row_wise(predict, ROWS, np.random.default_rng(0))


def test_a_function_of_the_row_may_share_calls():
    assert tried(predicting(lambda x: x @ [1.0, 2.0, 3.0])).holds
    assert tried(predicting(lambda x: x @ np.ones((3, 2)))).holds


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x[:, 0] - x[:, 0].mean(), "depends on the rows beside it"),
        (lambda x: x[:, 0] / max(len(x) // 30, 1), "depends on the rows beside it"),
        (lambda x: x[x[:, 0] > 0, 0], "one answer per row"),
        (lambda x: x[:, 0].mean(), "one answer per row"),
        (lambda x: np.cumsum(x[:, 0]), "depends on the rows beside it"),
    ],
    ids=["centred", "by size", "filtered", "aggregate", "running sum"],
)
def test_a_function_of_the_whole_call_does_not(function, told):
    result = tried(predicting(function))
    assert not result.holds
    assert told in result.reason


def test_state_and_errors_do_not():
    calls = iter(range(1000))
    assert not tried(predicting(lambda x: x[:, 0] + next(calls))).holds
    assert not tried(lambda inputs: Outcome(None, error="ValueError")).holds
    assert not prove_row_wise(predicting(lambda x: x[:, 0]), ROWS.take(0, 1), np.random.default_rng(0)).holds


def test_a_table_of_lists_may_share_calls():
    def predict(inputs: Inputs) -> Outcome:
        x = inputs.as_matrix(np.float64)
        return Outcome({"a": x[:, 0].tolist(), "b": (x[:, 1] > 0).tolist()})

    assert tried(predict).holds
