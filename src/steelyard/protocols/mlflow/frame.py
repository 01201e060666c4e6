"""Typed `Inputs` as what MLflow's models take: a pandas frame for columns, arrays for tensors.

Called in a model's worker, which has pandas; works with pandas 1.5 to 3. The frame is what MLflow's own enforcement
would give for the same data: columns in the signature's order, its dtypes, the request's index.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from steelyard.protocols.inputs import Inputs, Name
from steelyard.protocols.mlflow.schema import InputSchema

_TEXT, _TEXT_OR_NULL = {str}, {str, type(None)}


def to_frame(inputs: Inputs) -> Any:
    """A pandas DataFrame of its own memory, so that a model may change it."""
    import pandas as pd  # noqa: PLC0415  (only models that take frames need it)

    index = inputs.index if inputs.index is not None else pd.RangeIndex(inputs.rows)
    columns = _columns(inputs.names).view()  # an object of its own, since its name can be changed
    if inputs.matrix is not None:
        return pd.DataFrame(inputs.matrix.copy(), index=index, columns=columns, copy=False)
    if not inputs.parts:
        return pd.DataFrame(index=index, columns=columns)
    arrays = _inferred(pd, inputs)
    try:
        from pandas.api.internals import create_dataframe_from_blocks  # noqa: PLC0415
    except ImportError:  # pandas before 3 joins columns by itself, at a tenth of the speed
        frame = pd.DataFrame(dict(enumerate(arrays)), index=index)
        frame.columns = columns
        return frame
    return create_dataframe_from_blocks(_blocks(arrays), pd.Index(index), columns)


def to_model_input(inputs: Inputs, schema: InputSchema) -> Any:
    """The frame; for a signature of tensors the array, or a dict of arrays where they have names."""
    if schema.columns:
        return to_frame(inputs)
    if not schema.named:
        return np.array(inputs.arrays[0])
    return {name: np.array(array) for name, array in zip(inputs.names, inputs.arrays, strict=True)}


@lru_cache(maxsize=64)
def _columns(names: tuple[Name, ...]) -> Any:
    """Made once per model, for it costs more than the rest of a frame."""
    import pandas as pd  # noqa: PLC0415

    return pd.Index(list(names))


def _inferred(pd: Any, inputs: Inputs) -> list[Any]:
    """The columns, those of strings and of any value in the dtype that pandas has for them.

    All strings go over at once, for pandas needs as long for one as for a thousand.
    """
    arrays: list[Any] = list(inputs.parts)
    texts: list[int] = []
    for place, part in enumerate(inputs.parts):
        if part.dtype == object:
            values = part.tolist()
            if _TEXT <= set(map(type, values)) <= _TEXT_OR_NULL:
                texts.append(place)
            else:
                arrays[place] = _array(pd, values)
    if texts:
        whole = _array(pd, list(chain.from_iterable(inputs.parts[place] for place in texts)))
        for number, place in enumerate(texts):
            arrays[place] = whole[number * inputs.rows : (number + 1) * inputs.rows]
    return arrays


def _array(pd: Any, values: list[Any]) -> Any:
    series = pd.Series(values)
    return series.to_numpy() if isinstance(series.dtype, np.dtype) else series.array


def _blocks(arrays: list[Any]) -> list[tuple[Any, Any]]:
    """Columns of one dtype side by side, as pandas keeps them: (columns, rows), with the places that they have."""
    blocks, places = [], defaultdict(list)
    for place, array in enumerate(arrays):
        if isinstance(array, np.ndarray):
            places[array.dtype].append(place)
        else:
            blocks.append((array, np.array([place])))
    for alike in places.values():
        blocks.append((np.stack([arrays[place] for place in alike]), np.array(alike)))
    return blocks
