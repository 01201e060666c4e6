"""The calibration grid against simulated replicas that batch: it ends in time and predicts mixes it has not seen."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.policy.calibration_grid import (
    CalibrationGrid,
    ConcurrencySearch,
    Purpose,
    Result,
    Target,
)
from steelyard.policy.calibration_shapes import Limits, Shape, Sizes, blend, designed_mixes, random_mixes
from steelyard.policy.cost_fit import evaluate, fit
from steelyard.policy.units import TERMS, Term
from support.batching_replica import BatchingEngine, RowServer

LLM = Limits(max_concurrency=32, max_context=8192)
ROWS = Limits(max_concurrency=64, max_rows=2000)


def calibrate(replica, limits, *, budget_s, target=None, seed=0):
    grid = CalibrationGrid(limits, budget_s=budget_s, target=target, seed=seed)
    runs = []
    while (run := grid.next()) is not None:
        runs.append(run)
        grid.observe(replica.run(run), replica.now_s)
        assert len(runs) < 100
    return grid.outcome(), runs


def heldout_errors(outcome):
    cost = fit([item.observation for item in outcome.grid]).cost
    return evaluate(cost, [item.observation for item in outcome.held_out])


@pytest.mark.parametrize("seed", range(6))
def test_an_engine_that_batches_is_calibrated_within_ten_minutes_to_ten_percent(seed):
    replica = BatchingEngine(seed=seed)
    outcome, _ = calibrate(replica, LLM, budget_s=420, seed=seed)
    assert outcome.complete
    assert outcome.failure is None
    assert replica.now_s < 600
    errors = heldout_errors(outcome)
    assert errors.count == 8
    assert errors.median < 0.10
    assert errors.p95 < 0.20


@settings(deadline=None, max_examples=12)
@given(
    st.floats(0.005, 0.2),
    st.floats(0.0001, 0.005),
    st.floats(0.0005, 0.02),
    st.sampled_from([0.0, 3e-6, 2e-5]),
    st.sampled_from([1, 2, 16, 64, 256]),
    st.sampled_from([512, 2048, 32768]),
)
def test_engines_of_all_speeds_end_within_the_budget_and_are_predicted(
    step_s, input_s, output_s, context_s, most, room
):
    replica = BatchingEngine(step_s, input_s, output_s, context_s, most_lanes=most)
    outcome, runs = calibrate(replica, Limits(most, max_context=room), budget_s=420)
    assert replica.now_s < 600
    assert all(run.concurrency <= most for run in runs)
    assert len(outcome.grid) >= 5
    assert heldout_errors(outcome).median < 0.15


def test_a_classic_model_takes_seconds():
    replica = RowServer()
    outcome, _ = calibrate(replica, ROWS, budget_s=15)
    assert outcome.complete
    assert replica.now_s < 20
    errors = heldout_errors(outcome)
    assert errors.median < 0.10
    assert errors.p95 < 0.20


def test_a_model_of_one_row_at_a_time_gets_a_price_per_request():
    outcome, _ = calibrate(RowServer(batch_s=0.0), Limits(max_concurrency=8, max_rows=1), budget_s=10)
    cost = fit([item.observation for item in outcome.grid]).cost
    assert cost.coefficients == {Term.REQUEST: pytest.approx(0.104, rel=0.05)}


@pytest.mark.parametrize("budget_s", [60, 120, 200])
def test_an_early_stop_leaves_a_usable_fit(budget_s):
    """A budget for 420 s, cut: what was seen until then already tells the terms apart."""
    replica = BatchingEngine()
    grid = CalibrationGrid(LLM, budget_s=420)
    while replica.now_s < budget_s and (run := grid.next()) is not None:
        grid.observe(replica.run(run), replica.now_s)
    outcome = grid.outcome()
    assert not outcome.complete
    if budget_s >= 200:
        found = fit([item.observation for item in outcome.grid])
        assert {Term.INPUT, Term.OUTPUT} <= set(found.cost.coefficients)
        assert evaluate(found.cost, [item.observation for item in outcome.held_out]).median < 0.2


def test_windows_that_miss_the_target_are_run_again_with_fewer_at_once():
    target = Target(first_token_s=1.5)
    outcome, _ = calibrate(BatchingEngine(), LLM, budget_s=420, target=target)
    lanes = {item.observation.mix: item.concurrency for item in outcome.grid}
    assert lanes["reads"] < outcome.concurrency
    assert lanes["writes"] == outcome.concurrency
    assert outcome.target == target


def test_a_target_that_cannot_be_met_is_noted_and_ends():
    outcome, runs = calibrate(BatchingEngine(), LLM, budget_s=420, target=Target(per_token_s=0.001))
    assert outcome.concurrency == 1
    assert all(run.concurrency == 1 for run in runs)
    assert any("misses the targets" in note for note in outcome.notes)


def test_shapes_that_the_replica_refuses_are_left_out():
    outcome, _ = calibrate(BatchingEngine(refuse=400), LLM, budget_s=420)
    assert outcome.failure is None
    assert any("'reads' is left out: The prompt is too long." in note for note in outcome.notes)
    assert len(outcome.grid) >= 5


def test_a_replica_that_answers_nothing_fails_with_its_own_words():
    grid = CalibrationGrid(LLM, budget_s=420)
    assert grid.next().purpose is Purpose.ALONE
    grid.observe(Result((0.0,) * len(TERMS), 1.0, failed=3, fault="The weights are damaged."), 1.0)
    assert grid.next() is None
    assert "The weights are damaged." in grid.outcome().failure


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.001, 60), st.floats(0, 1e5), st.integers(0, 9), st.integers(0, 9), st.booleans()))
)
def test_whatever_runs_show_the_machine_ends(results):
    rng = random.Random(0)
    grid, elapsed_s, count = CalibrationGrid(LLM, budget_s=300), 0.0, 0
    while (run := grid.next()) is not None:
        seconds, work, finished, failed, slow = results[count % len(results)] if results else (1.0, 0.0, 0, 0, False)
        totals = tuple(work * rng.random() for _ in TERMS)
        elapsed_s += seconds
        grid.observe(Result(totals, seconds, 99 if slow else 0.1, None, None, finished, failed), elapsed_s)
        assert run.concurrency >= 1
        assert run.window_s > 0
        count += 1
        assert count < 200
    grid.outcome()


@pytest.mark.parametrize(
    ("capacity", "slow_above", "most", "best"),
    [
        (10, 999, 64, 16),  # the rate grows to ten lanes
        (1, 999, 64, 1),  # one lane saturates it
        (999, 12, 64, range(8, 13)),  # the target ends it
        (999, 999, 3, 3),  # the replica's own limit does
        (999, 0, 64, 1),
    ],
)
def test_the_search_finds_the_least_concurrency_of_the_highest_rate(capacity, slow_above, most, best):
    search = ConcurrencySearch(most, 1.0, holds_alone=slow_above >= 1)
    tried = []
    while (lanes := search.next()) is not None:
        tried.append(lanes)
        search.observe(lanes, float(min(lanes, capacity)), holds=lanes <= slow_above)
    assert len(tried) <= 6
    assert search.best == best or (isinstance(best, range) and search.best in best)


@pytest.mark.parametrize("limits", [LLM, ROWS, Limits(8, max_context=4096, image_tokens=64, caches=True)])
def test_the_grid_spans_what_the_model_takes(limits):
    sizes = Sizes(800, 100, 1500, 0.001, 0.03, 1e-5, 1e-4)
    mixes = [*designed_mixes(limits, sizes), *random_mixes(limits, sizes, 30, random.Random(1))]
    shapes = [shape for mix in mixes for shape, _ in mix.parts]
    assert any(shape.cached_tokens for shape in shapes) == limits.caches
    assert any(shape.image_tokens for shape in shapes) == bool(limits.image_tokens)
    assert any(shape.rows for shape in shapes) == bool(limits.max_rows)
    assert all(sum(share for _, share in mix.parts) == pytest.approx(1) for mix in mixes)
    assert len({mix.name for mix in mixes}) == len(mixes)


def test_parts_of_a_mix_bring_the_work_they_are_asked_for():
    sizes = Sizes(input_token_s=0.001, output_token_s=0.03)
    heavy, light = Shape(1000, 4), Shape(16, 4)
    mix = blend("both", [heavy, light], sizes, [1, 3])
    rng = random.Random(1)
    drawn = [mix.draw(rng) for _ in range(20_000)]
    work = [sum(sizes.work_s(shape) for shape in drawn if (shape.input_tokens > 100) is big) for big in (True, False)]
    assert work[1] / work[0] == pytest.approx(3, rel=0.1)
