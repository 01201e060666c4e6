"""Between `Inputs` and what MLflow's models take: a pandas frame of columns, an array, or a dict of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.protocols.inputs import Inputs


def payload_of(inputs: Inputs) -> Any:
    """A frame, an array, or a dict of arrays."""
    if inputs.columnar:
        return _frame(inputs)
    if inputs.names == (None,):
        return inputs.arrays[0]
    return dict(zip(inputs.names, inputs.arrays, strict=True))


def inputs_of(payload: Any) -> Inputs | None:
    """The reverse; None for what is neither."""
    if isinstance(payload, np.ndarray):
        return Inputs((None,), len(payload), None, (payload,), columnar=False)
    if isinstance(payload, dict):
        parts = tuple(map(np.asarray, payload.values()))
        return Inputs(tuple(payload), len(parts[0]) if parts else 0, None, parts, columnar=False)
    if type(payload).__name__ != "DataFrame":
        return None
    names = tuple(payload.columns)
    kinds = {str(kind) for kind in payload.dtypes}
    index = None if payload.index.equals(_range_index(len(payload))) else payload.index.tolist()
    if len(kinds) == 1 and payload.dtypes.iloc[0].kind in "iuf":
        return Inputs(names, len(payload), np.ascontiguousarray(payload.to_numpy()), (), True, index)
    parts = tuple(payload.iloc[:, place].to_numpy() for place in range(len(names)))
    return Inputs(names, len(payload), None, parts, True, index)


def _frame(inputs: Inputs) -> Any:
    import pandas as pd  # noqa: PLC0415  (only models that take frames need it)

    if inputs.matrix is not None:
        return pd.DataFrame(inputs.matrix, columns=list(inputs.names), index=inputs.index, copy=False)
    columns = {place: part for place, part in enumerate(inputs.parts)}  # noqa: C416
    frame = pd.DataFrame(columns, index=inputs.index if inputs.index is not None else range(inputs.rows))
    frame.columns = pd.Index(list(inputs.names))
    return frame


def _range_index(rows: int) -> Any:
    import pandas as pd  # noqa: PLC0415

    return pd.RangeIndex(rows)
