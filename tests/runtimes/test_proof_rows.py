"""The rows that a model is asked: of the types that a request can bring, of every kind, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor
from steelyard.runtimes.proof.asking import Asker
from steelyard.runtimes.proof.layout import NoLayout, layout_of
from steelyard.runtimes.proof.outcome import Outcome
from steelyard.runtimes.proof.prove import Effort, Trial
from steelyard.runtimes.proof.rows import make_batches
from support.proofs import doubles, matrix_inputs

MIXED = InputSchema(
    columns=(
        Column("city", ColumnType.STRING),
        Column("age", ColumnType.LONG),
        Column("rate", ColumnType.DOUBLE),
        Column("share", ColumnType.FLOAT, required=False),
        Column("member", ColumnType.BOOLEAN, required=False),
        Column("since", ColumnType.DATETIME),
        Column("kind", ColumnType.INTEGER),
    )
)
EXAMPLE = Inputs(
    ("city", "age", "rate", "share", "member", "since", "kind"),
    2,
    None,
    (
        np.array(["Kraków", "Łódź"], dtype=object),
        np.array([30, 40]),
        np.array([0.5, 1.5]),
        np.array([0.1, 0.2], dtype=np.float32),
        np.array([True, False]),
        np.array(["2024-01-01", "2025-01-01"], dtype="datetime64[ns]"),
        np.array([1, 2], dtype=np.int32),
    ),
)


def batches(
    schema: InputSchema | None, example: Inputs | None, hints: dict | None = None, rows: int = 2048
) -> list[Inputs]:
    return make_batches(layout_of(schema, example), example, hints or {}, np.random.default_rng(0), rows)


def column(made: list[Inputs], name: object) -> np.ndarray:
    return np.concatenate([item.arrays[item.names.index(name)] for item in made if name in item.names])


def test_about_as_many_rows_as_asked_for_go_alone_in_a_few_and_together():
    made = batches(doubles(3), None)
    sizes = [item.rows for item in made]
    assert 1900 <= sum(sizes) <= 2200
    assert sizes.count(1) >= 20
    assert max(sizes) == 256
    assert all(item.matrix is not None and item.matrix.flags.c_contiguous for item in made)


def test_the_same_seed_makes_the_same_rows():
    one, other = batches(MIXED, EXAMPLE), batches(MIXED, EXAMPLE)
    assert all(repr(a.arrays) == repr(b.arrays) for a, b in zip(one, other, strict=True))


def test_doubles_are_of_every_kind():
    values = column(batches(doubles(2), None), "x0")
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    assert (values == 0).any()
    assert (np.abs(values) > 1e300).any()
    assert ((values != 0) & (np.abs(values) < np.finfo(np.float64).tiny)).any()
    assert (values == 16777217.0).any()


def test_columns_have_the_dtypes_that_a_request_would_bring():
    made = batches(MIXED, EXAMPLE, {"city": ["Gdańsk"]})
    full = [item for item in made if len(item.names) == 7]
    for item in full:
        dtypes = [array.dtype.name for array in item.arrays]
        assert dtypes[:4] == ["object", "int64", "float64", "float32"]
        assert dtypes[4] in ("bool", "object")
        assert dtypes[5:] == ["datetime64[ns]", "int32"]
    cities = set(column(made, "city"))
    assert {"Kraków", "Łódź", "Gdańsk", "unseen", "", None, "KRAKÓW"} <= cities
    assert np.isnat(column(made, "since")).any()
    assert {2**53 + 1, 2**63 - 1, -(2**63)} <= set(column(made, "age").tolist())


def test_optional_columns_are_absent_alone_and_together():
    made = batches(MIXED, EXAMPLE)
    absent = {frozenset(EXAMPLE.names) - frozenset(item.names) for item in made}
    assert absent == {frozenset(), frozenset(["share"]), frozenset(["member"]), frozenset(["share", "member"])}


def test_known_thresholds_are_met_exactly_and_beside():
    values = column(batches(doubles(2), None, {"x0": [0.25, 7.5]}), "x0")
    for threshold in (0.25, 7.5):
        for value in (threshold, np.nextafter(threshold, 0), np.nextafter(threshold, 9)):
            assert (values == value).any()


def test_every_input_is_missing_alone_at_least_once():
    rows = np.concatenate([item.as_matrix(np.float64) for item in batches(doubles(20), None)])
    alone = rows[np.isnan(rows).sum(axis=1) == 1]
    assert np.isnan(alone).any(axis=0).all()


def test_tensors_have_their_shape_and_learn_free_lengths_from_the_example():
    schema = InputSchema(tensors=(Tensor("image", "float32", (-1, 3, -1)), Tensor("ids", "int64", (-1, -1))))
    example = Inputs(("image", "ids"), 1, None, (np.zeros((1, 3, 5), np.float32), np.zeros((1, 4), int)), False)
    for item in batches(schema, example, rows=64):
        image, ids = item.arrays
        assert (image.dtype, image.shape[1:]) == (np.float32, (3, 5))
        assert (ids.dtype, ids.shape[1:]) == (np.int64, (4,))


def test_a_fixed_number_of_rows_is_kept():
    made = batches(InputSchema(tensors=(Tensor(None, "float32", (4, 2)),)), None, rows=128)
    assert {item.rows for item in made} == {4}


def test_very_large_rows_are_few():
    made = batches(InputSchema(tensors=(Tensor("image", "float32", (-1, 3, 224, 224)),)), None)
    assert 8 <= sum(item.rows for item in made) <= 64


def test_without_signature_the_example_tells_the_inputs():
    made = batches(None, matrix_inputs(np.array([[1.0, 2.0]])), rows=64)
    assert all(item.names == ("x0", "x1") for item in made)


@pytest.mark.parametrize("schema", [None, InputSchema(columns=(Column("any", ColumnType.OTHER),))])
def test_no_rows_can_be_made_of_what_nothing_is_known_of(schema):
    with pytest.raises(NoLayout):
        batches(schema, None)
    made = Trial(lambda inputs: Outcome([]), schema, None, None, rng=np.random.default_rng(0))
    assert made.verdict(lambda inputs: Outcome([])).reason.startswith("refused: no rows can be made")


def test_one_row_that_the_model_refuses_is_found_among_many():
    def predict(inputs: Inputs) -> Outcome:
        values = inputs.as_matrix(np.float64)[:, 0]
        return Outcome(None, error="ValueError") if (values == 77).any() else Outcome(values.tolist())

    asker = Asker(predict, 100)
    cases = asker.ask(matrix_inputs(np.arange(256.0).reshape(-1, 1)))
    assert [case.inputs.rows for case in cases if case.expected.error] == [1]
    assert sum(case.inputs.rows for case in cases) == 256
    assert asker.calls >= 80


def test_the_calls_are_bounded_when_the_model_refuses_everything():
    asker = Asker(lambda inputs: Outcome(None, error="ValueError"), 1000)
    asker.ask(matrix_inputs(np.zeros((256, 1))))
    assert asker.calls >= 960
    made = Trial(lambda inputs: Outcome(None, error="ValueError"), doubles(2), None, None, rng=np.random.default_rng(0))
    assert "answers only 0 of" in made.verdict(lambda inputs: Outcome([])).reason


def test_a_model_whose_answers_change_from_call_to_call_proves_nothing():
    rng = np.random.default_rng(0)
    made = Trial(
        lambda inputs: Outcome(rng.random(inputs.rows).tolist()), doubles(1), None, None, rng=rng, effort=Effort(64, 0)
    )
    assert (
        made.verdict(lambda inputs: Outcome([])).reason == "refused: the model's own answers differ from call to call"
    )


def test_an_unseen_category_mapped_to_a_known_one_is_refused():
    known = {"Kraków": 1, "Łódź": 2}

    def predict(inputs: Inputs, unseen: int) -> Outcome:
        return Outcome([known.get(city, unseen) for city in inputs.arrays[0]])

    schema = InputSchema(columns=(Column("city", ColumnType.STRING),))
    example = Inputs(("city",), 2, None, (EXAMPLE.parts[0],))
    made = Trial(lambda inputs: predict(inputs, -1), schema, example, None, rng=np.random.default_rng(0))
    assert made.verdict(lambda inputs: predict(inputs, -1)).equal
    verdict = made.verdict(lambda inputs: predict(inputs, 1))
    assert not verdict.equal
    assert "label 1 instead of -1" in verdict.reason
