"""The output of a call that several requests share, taken apart again, and whether each part is what it would have
been alone.

Called by `joined.py`. Cutting is the lesser half: numpy and pandas give a column one dtype for all of its rows, so that
a null or a fraction in one request can make floats of another's integers. `Evidence` therefore remembers of which dtype
a column was when requests ran alone with such values, and vouches for nothing that it has not seen. What it cannot see
is a model whose types follow no rule by values; the proof of `row_wise`, which comes first, refuses those.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Records

_ONE, _OTHER, _FRACTION = 1, 2, 4  # what a row may hold: a null, or of integers 0 or 1; other values; no whole number
_SURE = 8  # times that values of these kinds were seen alone, before they are believed to have always this dtype
_MOST_TYPES = 60
_types: dict[str, int] = {}  # of Python values in columns of objects: a bit each


@dataclass(frozen=True, slots=True)
class Column:
    """`codes`: one number per row, whose bits say what kinds of values it holds."""

    dtype: str
    codes: NDArray[np.int64]

    def kinds(self, start: int, stop: int) -> int:
        return int(np.bitwise_or.reduce(self.codes[start:stop]))


@dataclass(frozen=True, slots=True)
class Form:
    """What an output is: its type, names and width, and its columns. Lists hold values of their own and have none."""

    key: Hashable
    columns: tuple[Column, ...]


class Evidence:
    """What requests that ran alone have shown of one way of predicting. Used by several threads at once."""

    def __init__(self) -> None:
        self.apart = ""  # why no call may be shared any more
        self._key: Hashable | None = None
        self._dtypes: list[str] = []  # of the columns, always
        self._times: list[dict[int, int]] = []  # for each column: how often it was seen, by the kinds of values in it

    def learn(self, output: Any, rows: int) -> None:
        """Of a request that ran alone."""
        if self.apart:
            return
        form = form_of(output, rows)
        if form is None:
            self.apart = "the model's output cannot be divided by rows"
            return
        if self._key is None:
            self._dtypes = [column.dtype for column in form.columns]
            self._times = [{} for _ in form.columns]
            self._key = form.key
        if form.key != self._key:
            self.apart = "the model's output has not always the same form"
            return
        if self._dtypes != [column.dtype for column in form.columns]:
            self.apart = "the model's output has not always the same types"
            return
        for column, times in zip(form.columns, self._times, strict=True):
            kinds = column.kinds(0, rows)
            times[kinds] = times.get(kinds, 0) + 1

    def vouches(self, form: Form, start: int, stop: int) -> bool:
        """Whether these rows of a shared call are what they would have been alone. A contradiction ends all sharing."""
        if self._key is None:
            return False
        if form.key != self._key:
            self.apart = "the model's output has another form when requests share a call"
            return False
        if self._dtypes != [column.dtype for column in form.columns]:
            self.apart = "the model's output has other types when requests share a call"
            return False
        pairs = zip(form.columns, self._times, strict=True)
        return all(times.get(column.kinds(start, stop), 0) >= _SURE for column, times in pairs)


def form_of(output: Any, rows: int) -> Form | None:
    """None for an output that does not have one entry per row, or that nobody could cut."""
    try:
        return _form(output, rows)
    except Exception:  # an output's own methods are the model's code
        return None


def divide(output: Any, rows: Sequence[int]) -> list[Any]:
    """The part of each request, in order; `form_of` must know the output."""
    cut = _cutter(output)
    parts, start = [], 0
    for count in rows:
        parts.append(cut(start, start + count))
        start += count
    return parts


def _form(output: Any, rows: int) -> Form | None:
    if type(output) is list or type(output) is tuple:
        return Form(type(output).__name__, ()) if len(output) == rows else None
    if type(output) is dict:
        return _several("dict", tuple(output), list(output.values()), rows)
    if type(output) is Records:
        return _several("records", output.names, list(output.arrays), rows)
    if _is_frame(output):
        columns = [output.iloc[:, place] for place in range(len(output.columns))]
        return _several("frame", tuple(output.columns), columns, rows) if len(output) == rows else None
    column = _column(output, rows)
    return None if column is None else Form((_kind(output), _tail(output)), (column,))


def _several(kind: str, names: tuple[Any, ...], values: list[Any], rows: int) -> Form | None:
    """Columns side by side; those of a list are free, since its values are."""
    if not values:
        return None
    forms: list[Hashable] = []
    columns: list[Column] = []
    for value in values:
        if type(value) is list or type(value) is tuple:
            if len(value) != rows:
                return None
            forms.append((type(value).__name__, ()))
            continue
        column = _column(value, rows)
        if column is None:
            return None
        forms.append((_kind(value), _tail(value)))
        columns.append(column)
    labels = tuple((type(name).__name__, name) for name in names)
    return Form((kind, labels, tuple(forms)), tuple(columns))


def _column(values: Any, rows: int) -> Column | None:
    if len(values) != rows or not rows:
        return None
    if type(values) is np.ndarray:
        codes = _codes(values)
        name = values.dtype.kind if values.dtype.kind in "US" else values.dtype.str  # a text's width means nothing
        return None if codes is None else Column(name, codes)
    if _of_module(values, "pandas"):
        return _series_column(values)
    if _of_module(values, "torch"):
        codes = _codes(values.detach().cpu().numpy())
        return None if codes is None else Column(str(values.dtype), codes)
    return None


def _series_column(values: Any) -> Column | None:
    if not hasattr(values, "iloc"):
        return None
    if isinstance(values.dtype, np.dtype):
        codes = _codes(values.to_numpy())
    elif values.dtype.kind in "iufb" and hasattr(values.array, "_mask"):
        codes = _codes(values.to_numpy(dtype=np.float64, na_value=np.nan))
    else:
        codes = np.where(values.isna().to_numpy(), _ONE, _OTHER)
    return None if codes is None else Column(str(values.dtype), codes)


def _codes(values: NDArray[Any]) -> NDArray[np.int64] | None:
    kind, rows = values.dtype.kind, len(values)
    if kind == "f":
        codes = np.where(np.isnan(values), _ONE, np.where(values == np.floor(values), _OTHER, _FRACTION))
        codes[np.isinf(values)] = _FRACTION
    elif kind in "iu":
        codes = np.where((values == 0) | (values == 1), _ONE, _OTHER)
    elif kind == "b":
        codes = np.zeros(values.shape, dtype=np.int64)
    elif kind in "mM":
        codes = np.where(np.isnat(values), _ONE, _OTHER)
    elif kind == "U":
        codes = _each(values, lambda text: _ONE if _is_number(text) else _OTHER)
    elif kind == "O":
        codes = _each(values, _bit)
    else:
        return None
    if codes.ndim == 1:
        return codes
    return np.bitwise_or.reduce(codes.reshape(rows, -1), axis=1) if codes.size else np.zeros(rows, dtype=np.int64)


def _each(values: NDArray[Any], code: Callable[[Any], int]) -> NDArray[np.int64]:
    return np.fromiter(map(code, values.ravel().tolist()), np.int64, values.size).reshape(values.shape)


def _bit(value: Any) -> int:
    """Raises OverflowError when there are more types than bits: such an output is not cut."""
    name = "nan" if value != value else type(value).__qualname__  # noqa: PLR0124
    place = _types.setdefault(name, len(_types))
    if place >= _MOST_TYPES:
        raise OverflowError("too many types")
    return 1 << place


def _is_number(text: str) -> bool:
    """Whether numpy may have made text of it."""
    if text in ("True", "False", "None"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cutter(output: Any) -> Callable[[int, int], Any]:
    if type(output) is dict:
        inner = {name: _cutter(value) for name, value in output.items()}
        return lambda start, stop: {name: cut(start, stop) for name, cut in inner.items()}
    if type(output) is Records:
        names, arrays = output.names, output.arrays
        return lambda start, stop: Records(names, tuple(array[start:stop] for array in arrays))
    if hasattr(output, "iloc"):
        return _pandas_cutter(output)
    return lambda start, stop: output[start:stop]


def _pandas_cutter(output: Any) -> Callable[[int, int], Any]:
    import pandas as pd  # noqa: PLC0415  (the model has loaded it already)

    index = output.index
    counted = isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1)

    def cut(start: int, stop: int) -> Any:
        part = output.iloc[start:stop]
        if counted:  # each request's rows count from 0, as they do alone
            part.index = pd.RangeIndex(stop - start)
        return part

    return cut


def _is_frame(output: Any) -> bool:
    return type(output).__name__ == "DataFrame" and _of_module(output, "pandas")


def _of_module(value: Any, name: str) -> bool:
    return type(value).__module__.partition(".")[0] == name


def _kind(value: Any) -> Hashable:
    """With a series' name, which names the output."""
    return (type(value).__name__, getattr(value, "name", None)) if hasattr(value, "iloc") else type(value).__name__


def _tail(value: Any) -> tuple[int, ...]:
    return tuple(value.shape[1:])
