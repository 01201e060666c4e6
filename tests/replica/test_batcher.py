"""Requests of one turn of the loop share a call, each gets its own rows' answers, and errors are nobody else's."""

import asyncio

import numpy as np
import pytest

from steelyard.errors import ModelFailed
from steelyard.protocols.inputs import Inputs, Records
from steelyard.replica.batcher import Batcher
from steelyard.runtimes.proof.measure import Cost

COST = Cost(50.0, 1.0)
BUDGET_US = 1000.0  # 950 rows


def rows(*values: float) -> Inputs:
    return Inputs(("a",), len(values), np.array(values, dtype=np.float64).reshape(-1, 1))


def told(predict, requests, cost=COST, *, joins=True) -> list:
    """What each request is told: its outputs or its error."""
    results: dict[int, object] = {}

    async def run() -> None:
        batcher = Batcher(predict, cost, BUDGET_US, joins=joins)
        for place, inputs in enumerate(requests):
            batcher.add(inputs, lambda outputs, error, place=place: results.update({place: error or outputs}))
        await asyncio.sleep(0)

    asyncio.run(run())
    return [results[place] for place in range(len(requests))]


class Model:
    """Twice the value; `fails` at a value of -1."""

    def __init__(self, fails: Exception | None = None, answer=lambda array: array) -> None:
        self.calls: list[int] = []
        self._fails, self._answer = fails, answer

    def predict(self, inputs: Inputs):
        self.calls.append(inputs.rows)
        column = inputs.arrays[0]
        if self._fails is not None and (column == -1).any():
            raise self._fails
        return self._answer(column * 2)


def test_requests_of_one_turn_share_a_call():
    model = Model()
    results = told(model.predict, [rows(1), rows(2, 3), rows(4)])
    assert [result.tolist() for result in results] == [[2], [4, 6], [8]]
    assert model.calls == [4]


@pytest.mark.parametrize(
    ("answer", "values_of"),
    [
        (lambda array: Records(("x",), (array,)), lambda part: part.arrays[0].tolist()),
        (lambda array: {"x": array, "y": array}, lambda part: part["y"].tolist()),
    ],
)
def test_tables_and_objects_are_cut_like_arrays(answer, values_of):
    results = told(Model(answer=answer).predict, [rows(1), rows(2, 3)])
    assert [values_of(result) for result in results] == [[2], [4, 6]]


def test_one_call_never_costs_more_than_the_budget():
    model = Model()
    told(model.predict, [rows(*[1.0] * 400) for _ in range(5)])
    assert model.calls == [800, 800, 400]


def test_what_cannot_be_joined_or_is_cheap_alone_runs_alone():
    model = Model()
    other = Inputs(("a",), 1, np.array([[2]]))
    assert [result.tolist() for result in told(model.predict, [rows(1), other])] == [[2], [4]]
    told(model.predict, [rows(1), rows(2)], joins=False)
    told(model.predict, [rows(1), rows(2)], Cost(1.0, 1.0))
    assert model.calls == [1] * 6


@pytest.mark.parametrize("error", [ModelFailed("no"), RuntimeError("not foreseen"), MemoryError()], ids=repr)
def test_rows_that_fail_fail_only_their_own_request(error):
    results = told(Model(error).predict, [rows(1), rows(-1), rows(3)])
    assert [result if isinstance(result, Exception) else result.tolist() for result in results] == [[2], error, [6]]


def test_an_answer_that_does_not_fit_the_rows_is_asked_for_again_one_by_one():
    model = Model(answer=lambda array: array[:1])
    results = told(model.predict, [rows(1), rows(2)])
    assert [result.tolist() for result in results] == [[2], [4]]
    assert model.calls == [2, 1, 1]
