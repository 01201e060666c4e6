"""One model of the zoo: where it lies, 500 rows for it, and what it answers to them itself.

Written by the builders in a process of their own, read by tests as plain values. `expected` comes from
`mlflow.pyfunc.load_model(…).predict` and never passes through the platform.
"""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any, Literal

import msgspec

ROWS = 500
Layout = Literal["table", "tensor", "tensors", "items", "hints", "messages", "texts"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` are one list of cells per row of a table, one nested array per row of a tensor, one object per row of
    named tensors, one value per item (`hints`: of a model whose type hints say what it takes), one whole body per
    conversation. `expected` has one answer per row; `columns`
    says that the model answers with an object of arrays. `streams` are the chunks of the first conversations.
    """

    model: str
    layout: Layout
    names: list[str] = []
    rows: list[Any]
    expected: list[Any]
    columns: bool = False
    single_precision: bool = False
    params: dict[str, Any] | None = None
    streams: list[list[Any]] = []

    @property
    def rtol(self) -> float:
        return 1e-5 if self.single_precision else 1e-9

    @property
    def atol(self) -> float:
        return 1e-6 if self.single_precision else 1e-12

    def write(self, folder: Path) -> None:
        (folder / "case.json").write_bytes(msgspec.json.encode(self))


def read_case(folder: Path) -> Case:
    return msgspec.json.decode((folder / "case.json").read_bytes(), type=Case)


def table_case(model: Path, frame: Any, params: dict[str, Any] | None = None) -> Case:
    """A case whose rows are a pandas frame in the dtypes of the model's signature."""
    output = own_predict(model, frame, params)
    rows = plain(frame.astype(object).where(frame.notna(), None).to_numpy())
    return _case(model, "table", rows, output, names=list(frame.columns), params=params)


def tensor_case(model: Path, array: Any) -> Case:
    return _case(model, "tensor", plain(array), own_predict(model, array))


def tensors_case(model: Path, arrays: dict[str, Any]) -> Case:
    rows = [dict(zip(arrays, row, strict=True)) for row in zip(*map(plain, arrays.values()), strict=True)]
    return _case(model, "tensors", rows, own_predict(model, arrays), names=list(arrays))


def items_case(model: Path, items: list[Any], layout: Layout = "items") -> Case:
    """A case whose rows are the items of a list, given to the model as they are."""
    return _case(model, layout, items, own_predict(model, items))


def own_predict(model: Path, data: Any, params: dict[str, Any] | None = None) -> Any:
    """The model's own answer, through MLflow and nothing else."""
    import mlflow.pyfunc

    output = mlflow.pyfunc.load_model(str(model)).predict(data, params=params)
    return asyncio.run(output) if inspect.iscoroutine(output) else output


def _case(model: Path, layout: Layout, rows: list[Any], output: Any, **more: Any) -> Case:
    expected = plain(output)
    columns = isinstance(expected, dict)
    if columns:
        expected = [dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)]
    assert len(rows) == len(expected) == ROWS, f"{model}: {len(rows)} rows, {len(expected)} answers"
    single = has_single_precision(output)
    return Case(
        model=str(model), layout=layout, rows=rows, expected=expected, columns=columns, single_precision=single, **more
    )


def plain(value: Any) -> Any:
    """A model's output as JSON values: tables and series as one object per row, as MLflow's server writes them."""
    import numpy as np
    import pandas as pd

    if isinstance(value, pd.Series):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        return [{str(name): plain(cell) for name, cell in row.items()} for row in value.to_dict("records")]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value != value:
        return None
    return value


def has_single_precision(value: Any) -> bool:
    """Whether any number of the output has 32 bits or fewer."""
    import numpy as np
    import pandas as pd

    if isinstance(value, pd.Series):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        return any(str(dtype) in ("float16", "float32") for dtype in value.dtypes)
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype in (np.float16, np.float32)
    if isinstance(value, dict):
        return any(map(has_single_precision, value.values()))
    return isinstance(value, list) and any(map(has_single_precision, value[:3]))
