"""A record comes back from JSON to the last bit, and its stored rows tell a runtime that has changed."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.asking import Case
from steelyard.runtimes.proof.measure import Cost
from steelyard.runtimes.proof.outcome import Outcome
from steelyard.runtimes.proof.prove import Effort, Trial, Verdict
from steelyard.runtimes.proof.record import (
    Record,
    Tried,
    check_probes,
    decode_record,
    encode_record,
    store_probes,
)
from support.proofs import doubles, predicting

VERSIONS = {"steelyard": "0.1.0", "numpy": "2.4.6"}


def recorded(cases: list[Case]) -> Record:
    return Record(
        runtime="onnx",
        cost=Cost(13.0, 1.0),
        row_wise=True,
        reason="chose onnx: 14 µs for one row, 1.0 ms for 1,000",
        tried=[
            Tried(runtime="onnx", verdict=Verdict(equal=True, rows=2048, reason="equal on 2,048 rows")),
            Tried(
                runtime="treelite", verdict=Verdict(equal=False, rows=2048, reason="refused: 3 of 2,048 rows differ")
            ),
        ],
        versions=VERSIONS,
        probes=store_probes(cases),
    )


def through_json(record: Record) -> Record:
    read = decode_record(encode_record(record), VERSIONS)
    assert read is not None
    return read


def test_the_sentence_tells_the_choice_and_the_refusals():
    assert recorded([]).sentence == (
        "chose onnx: 14 µs for one row, 1.0 ms for 1,000, equal on 2,048 rows; treelite refused: 3 of 2,048 rows differ"
    )


def test_stored_rows_come_back_exactly():
    parts = (
        np.array(["ż", None], dtype=object),
        np.array([math.nan, 5e-324]),
        np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
        np.array([[1, 2], [3, 4]], dtype=np.int8),
    )
    inputs = Inputs(("a", "b", "c", 3), 2, None, parts)
    seen: list[Inputs] = []

    def candidate(given: Inputs) -> Outcome:
        seen.append(given)
        return Outcome([math.nan, {"x": [math.inf, 2**60]}])

    case = Case(inputs, Outcome([math.nan, {"x": [math.inf, 2**60]}]))
    record = through_json(recorded([case, Case(inputs, Outcome(None, error="ValueError"))]))
    assert not check_probes(record, candidate).equal  # it answers the second, which the model refuses
    given = seen[0]
    assert given.names == inputs.names
    for mine, its in zip(given.arrays, parts, strict=True):
        assert mine.dtype == its.dtype
        assert repr(mine.tolist()) == repr(its.tolist())
    only = through_json(recorded([case]))
    assert check_probes(only, candidate).equal


def test_a_trial_s_probes_tell_a_changed_runtime():
    weights = np.array([1.0, -2.0, 0.5])

    def linear(matrix: np.ndarray) -> np.ndarray:
        if not np.isfinite(matrix).all():
            raise ValueError("not finite")
        return matrix @ weights

    made = Trial(
        predicting(linear),
        doubles(3),
        None,
        None,
        rng=np.random.default_rng(0),
        effort=Effort(rows=512, boundary_calls=0),
    )
    record = through_json(recorded(made.probes()))
    assert 8 <= len(record.probes) <= 24
    assert check_probes(record, predicting(linear)).equal
    assert not check_probes(record, predicting(lambda x: linear(x) * (1 + 1e-6))).equal
    assert not check_probes(record, predicting(lambda x: linear(np.nan_to_num(x)))).equal


def test_other_versions_another_format_or_damage_mean_no_record():
    data = encode_record(recorded([]))
    assert decode_record(data, VERSIONS) is not None
    assert decode_record(data, {**VERSIONS, "numpy": "2.5.0"}) is None
    assert decode_record(data[: len(data) // 2], VERSIONS) is None
    assert decode_record(encode_record(msgspec.structs.replace(recorded([]), format=99)), VERSIONS) is None
