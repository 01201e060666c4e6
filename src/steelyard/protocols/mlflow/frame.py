"""Typed `Inputs` as what MLflow's models take: a pandas frame for columns, arrays for tensors.

Called in a model's worker, which has pandas; works with pandas 1.5 to 3. The frame is what MLflow's own enforcement
would give for the same data: columns in the signature's order, its dtypes, the request's index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.schema import InputSchema


def to_frame(inputs: Inputs) -> Any:
    """A pandas DataFrame of its own memory, so that a model may change it."""
    import pandas as pd  # noqa: PLC0415  (only models that take frames need it)

    index = inputs.index if inputs.index is not None else pd.RangeIndex(inputs.rows)
    if inputs.matrix is not None:
        return pd.DataFrame(inputs.matrix.copy(), index=index, columns=list(inputs.names), copy=False)
    frame = pd.DataFrame(dict(enumerate(inputs.parts)), index=index)
    frame.columns = pd.Index(list(inputs.names))
    return frame


def to_model_input(inputs: Inputs, schema: InputSchema) -> Any:
    """The frame; for a signature of tensors the array, or a dict of arrays where they have names."""
    if schema.columns:
        return to_frame(inputs)
    if not schema.named:
        return np.array(inputs.arrays[0])
    return {name: np.array(array) for name, array in zip(inputs.names, inputs.arrays, strict=True)}
