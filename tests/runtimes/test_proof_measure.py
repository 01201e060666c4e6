"""A call's cost is fitted from timings that are given, and the choice follows from the costs alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.measure import Cost, choose, effort_within, fit, measure
from steelyard.runtimes.proof.outcome import Outcome
from steelyard.runtimes.proof.prove import FULL
from support.proofs import matrix_inputs

ROWS = matrix_inputs(np.zeros((3, 2)))


class Clock:
    """A runtime whose calls take exactly `call_us + rows × row_us`, and the timer that says so."""

    def __init__(self, call_us: float, row_us: float) -> None:
        self.now_ns = 0
        self.cost = Cost(call_us, row_us)
        self.sizes: list[int] = []

    def predict(self, inputs: Inputs) -> Outcome:
        self.sizes.append(inputs.rows)
        self.now_ns += int(self.cost.of(inputs.rows) * 1e3)
        return Outcome([0] * inputs.rows)

    def timer(self) -> int:
        return self.now_ns


@pytest.mark.parametrize(("call_us", "row_us"), [(14.0, 0.5), (5000.0, 3.0), (0.0, 2.0), (300.0, 0.0)])
def test_the_line_is_found_within_the_budget(call_us, row_us):
    clock = Clock(call_us, row_us)
    cost = measure(clock.predict, ROWS, clock.timer, budget_s=0.5)
    assert cost.call_us == pytest.approx(call_us, rel=0.01, abs=0.1)
    assert cost.row_us == pytest.approx(row_us, rel=0.01, abs=0.1)
    assert clock.now_ns <= 0.6e9


def test_a_slow_model_is_measured_with_few_rows():
    clock = Clock(0.0, 50_000.0)
    cost = measure(clock.predict, ROWS, clock.timer, budget_s=0.5)
    assert cost.row_us == pytest.approx(50_000, rel=0.1)
    assert max(clock.sizes) <= 8
    assert clock.now_ns <= 1.2e9


@given(st.dictionaries(st.sampled_from([1, 8, 64, 512]), st.floats(0, 1e9), min_size=1))
def test_a_fitted_cost_is_never_negative(best_us):
    cost = fit(best_us)
    assert cost.call_us >= 0
    assert cost.row_us >= 0


def test_the_cheapest_for_one_row_is_chosen():
    choice = choose([("pyfunc", Cost(3000, 5)), ("onnx", Cost(13, 1)), ("treelite", Cost(20, 0.1))])
    assert choice.name == "onnx"
    assert choice.reason == "chose onnx: 14 µs for one row, 1 ms for 1,000"


def test_among_close_ones_the_much_cheaper_for_many_rows_is_chosen():
    assert choose([("a", Cost(10, 1.0)), ("b", Cost(10.9, 0.1))]).name == "b"
    assert choose([("a", Cost(10, 1.0)), ("b", Cost(10.9, 0.9))]).name == "a"
    assert choose([("a", Cost(10, 1.0)), ("b", Cost(14, 0.1))]).name == "a"


def test_the_earlier_of_equal_ones_is_chosen():
    assert choose([("a", Cost(10, 1)), ("b", Cost(10, 1))]).name == "a"


def test_a_fast_reference_answers_the_whole_proof_and_a_slow_one_less():
    assert effort_within(Cost(500, 2), 5.0) == FULL
    slow = effort_within(Cost(1000, 2000), 5.0)
    assert 128 <= slow.rows < FULL.rows
    assert slow.boundary_calls * Cost(1000, 2000).of(slow.boundary_rows) <= 2.6e6
    slowest = effort_within(Cost(0, 1e6), 5.0)
    assert (slowest.rows, slowest.boundary_calls) == (128, 0)
