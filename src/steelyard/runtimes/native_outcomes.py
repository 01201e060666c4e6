"""A native runtime as the proof asks it: rows in, what it said out, in the one form that all are compared in.

Used by `select.py` for candidates and for the check of a kept verdict.
"""

from __future__ import annotations

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow import to_plain
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.proof.outcome import Outcome, Predict
from steelyard.worker.outcome import float_bits


def outcomes_of(runtime: RowRuntime) -> Predict:
    """The runtime as a `Predict`; what it raises is the outcome's error."""

    def predict(inputs: Inputs) -> Outcome:
        try:
            outputs = runtime.predict(inputs)
            return Outcome(to_plain(outputs), float_bits(outputs) or 64)
        except Exception as error:  # also what no runtime should raise: it is then not equal
            return Outcome(None, error=type(error).__name__)

    return predict
