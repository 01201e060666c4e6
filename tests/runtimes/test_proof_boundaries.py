"""Thresholds are found by asking, to the last representable number, within a bounded number of calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema
from steelyard.runtimes.proof.outcome import Outcome
from steelyard.runtimes.proof.prove import Effort, Trial, prove
from steelyard.runtimes.proof.signatures import signatures
from support.proofs import TreeArrays, doubles, matrix_inputs, predicting, refuse_like_sklearn


def test_an_answer_has_the_same_key_whatever_it_is_asked_with():
    rows = [[0.1, 0.2], [0.3, math.nan]]
    assert signatures(rows, 64) == signatures([*rows, None], 64)[:2] == signatures([*rows, ["a"]], 64)[:2]
    assert signatures([0.1 + 0.2], 64) == signatures([0.3], 64) == signatures([0.3, "a"], 64)[:1]


def trial(function, columns: int = 3, hints: dict | None = None) -> Trial:
    return Trial(predicting(function), doubles(columns), None, hints, rng=np.random.default_rng(3))


def step(threshold: float, strict: bool = False):
    return lambda x: ((x[:, 0] < threshold) if strict else (x[:, 0] <= threshold)).astype(int)


@pytest.mark.parametrize("threshold", [0.1, -1e-300, 0.7310585786300049, 1e10, 0.0])
def test_a_single_threshold_is_found_to_the_last_bit(threshold):
    made = trial(step(threshold))
    assert made.boundaries >= 1
    assert made.verdict(predicting(step(threshold))).equal
    for mutant in (
        step(threshold, strict=True),
        step(np.nextafter(threshold, np.inf)),
        lambda x: step(np.float32(threshold) + np.float32(1e-30))(x.astype(np.float32)),
    ):
        assert not made.verdict(predicting(mutant)).equal


def test_a_threshold_of_an_integer_column_is_found():
    schema = InputSchema(columns=(Column("x", ColumnType.LONG),))
    threshold = 123_456_789_012

    def predict(inputs: Inputs, shift: int = 0) -> Outcome:
        return Outcome((inputs.arrays[0] > threshold + shift).tolist())

    made = Trial(predict, schema, None, None, rng=np.random.default_rng(0))
    assert made.verdict(predict).equal
    assert not made.verdict(lambda inputs: predict(inputs, 1)).equal


def test_labels_beside_smooth_scores_have_their_boundaries_found():
    def predict(inputs: Inputs, threshold: float) -> Outcome:
        x = inputs.as_matrix(np.float64)[:, 0]
        return Outcome([{"score": float(a / 3), "label": int(a > threshold)} for a in x])

    made = Trial(lambda inputs: predict(inputs, 0.37), doubles(2), None, None, rng=np.random.default_rng(0))
    assert made.boundaries >= 1
    assert made.verdict(lambda inputs: predict(inputs, 0.37)).equal
    assert not made.verdict(lambda inputs: predict(inputs, np.nextafter(0.37, 1))).equal


@pytest.mark.parametrize(
    "function",
    [
        step(0.5),
        lambda x: np.tanh(x.sum(axis=1)),
        lambda x: np.zeros(len(x)),
        lambda x: np.floor(np.clip(x, -1e6, 1e6) * 100).sum(axis=1),
    ],
    ids=["step", "smooth", "constant", "many steps"],
)
def test_the_reference_is_asked_a_bounded_number_of_calls_and_rows(function):
    sizes: list[int] = []
    inner = predicting(function)

    def counted(inputs: Inputs) -> Outcome:
        sizes.append(inputs.rows)
        return inner(inputs)

    effort = Effort(rows=512, boundary_calls=120, boundary_rows=128)
    made = Trial(counted, doubles(3), None, {"x0": [0.5, 0.6]}, rng=np.random.default_rng(0), effort=effort)
    assert made.refusal is None
    assert len(sizes) <= 60 + 120 + 10
    assert max(sizes) <= 256


def test_a_model_with_many_columns_takes_seconds():
    weights = np.random.default_rng(0).normal(size=400)
    verdict = prove(
        predicting(lambda x: (np.nan_to_num(x, posinf=0, neginf=0) @ weights > 0).astype(int)),
        predicting(lambda x: (np.nan_to_num(x, posinf=0, neginf=0) @ weights > 0).astype(int)),
        doubles(400),
        None,
        rng=np.random.default_rng(0),
    )
    assert verdict.equal


def test_with_its_thresholds_named_a_deep_tree_s_mutants_are_refused():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(600, 6)) * [1, 10, 0.1, 1, 100, 1]
    y = np.digitize(x[:, 0] + x[:, 1] / 10 + x[:, 2] * 10 + x[:, 3] ** 2, [-1, 0.5, 2])
    tree = DecisionTreeClassifier(max_depth=7, random_state=0).fit(x, y)
    honest = TreeArrays.of(tree.tree_)
    hints = {f"x{place}": honest.threshold[honest.feature == place].tolist() for place in range(6)}
    made = Trial(predicting(tree.predict_proba), doubles(6), matrix_inputs(x[:5]), hints, rng=np.random.default_rng(1))

    def refused(mutant: TreeArrays) -> bool:
        def predict(matrix: np.ndarray) -> np.ndarray:
            refuse_like_sklearn(matrix)
            return mutant.values(matrix)

        return not made.verdict(predicting(predict)).equal

    assert not refused(honest)
    inner, leaves = honest.inner[::5], honest.leaves[::5]
    caught = 0
    for node in inner:
        mutant = TreeArrays.of(tree.tree_)
        mutant.threshold[node] = np.nextafter(np.float32(mutant.threshold[node]), np.float32(np.inf))
        caught += refused(mutant)
    assert caught >= 0.9 * len(inner)
    caught = 0
    for node in leaves:
        mutant = TreeArrays.of(tree.tree_)
        mutant.value[node] += [1e-6, 0, 0, -1e-6]
        caught += refused(mutant)
    assert caught >= 0.95 * len(leaves)
