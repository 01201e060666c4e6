"""Whether a model treats every row on its own, so that rows of several requests may share a call.

Called once per model version with the runtime that was chosen and rows that the model answers. A model that ranks,
normalises over the call, keeps state or drops rows fails, and its requests are never joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.compare import difference, tolerance_of
from steelyard.runtimes.proof.outcome import Predict, split_rows

_MAX_ROWS = 64
_SINGLES = 8


@dataclass(frozen=True, slots=True)
class RowWise:
    """`reason` is a sentence for the endpoint's events."""

    holds: bool
    reason: str


class _Broken(Exception):
    pass


def prove_row_wise(predict: Predict, inputs: Inputs, rng: Generator) -> RowWise:
    """`inputs`: at least 2 rows that the model answers, as different as possible; at most 64 are used. 16 calls."""
    rows = min(inputs.rows, _MAX_ROWS)
    if rows < 2:
        return RowWise(False, "requests do not share calls: there are too few rows to try it with")
    inputs = _without_index(inputs.take(0, rows))
    try:
        together = _answers(predict, inputs)
        cut = rows // 3 + 1 if rows > 3 else 1
        parts = _answers(predict, inputs.take(0, cut)) + _answers(predict, inputs.take(cut, rows))
        _same(together, parts, "an answer depends on the rows beside it")
        order = rng.permutation(rows)
        moved = _answers(predict, _reordered(inputs, order))
        _same([together[row] for row in order], moved, "an answer depends on the order of the rows")
        chosen = [int(row) for row in rng.permutation(rows)[:_SINGLES]]
        alone = [_answers(predict, inputs.take(row, row + 1))[0] for row in chosen]
        _same([together[row] for row in chosen], alone, "a row alone gets another answer than among others")
        _same(together, _answers(predict, inputs), "the same rows get another answer the second time")
    except _Broken as reason:
        return RowWise(False, f"requests do not share calls: {reason}")
    return RowWise(True, f"requests may share calls: {rows} rows got the same answers alone, together and reordered")


def _answers(predict: Predict, inputs: Inputs) -> list[tuple[Any, int]]:
    outcome = predict(inputs)
    if outcome.error is not None:
        raise _Broken(f"the model raised {outcome.error}")
    answers = split_rows(outcome.plain, inputs.rows)
    if answers is None:
        raise _Broken("the output does not have one answer per row")
    return [(answer, outcome.float_bits) for answer in answers]


def _same(expected: list[tuple[Any, int]], got: list[tuple[Any, int]], otherwise: str) -> None:
    for (one, bits), (other, _) in zip(expected, got, strict=True):
        if difference(one, other, tolerance_of(bits)) is not None:
            raise _Broken(otherwise)


def _without_index(inputs: Inputs) -> Inputs:
    return Inputs(inputs.names, inputs.rows, inputs.matrix, inputs.parts, inputs.columnar)


def _reordered(inputs: Inputs, order: np.ndarray[Any, Any]) -> Inputs:
    matrix = None if inputs.matrix is None else inputs.matrix[order]
    return Inputs(inputs.names, inputs.rows, matrix, tuple(part[order] for part in inputs.parts), inputs.columnar)
