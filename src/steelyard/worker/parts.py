"""The output of a call that several requests share, taken apart again, and whether each part is what it would have
been alone.

Called by `joined.py`. Cutting is the lesser half: a null or a fraction in one request can make floats of another's
integers. `Evidence` therefore remembers of which types a column was when requests ran alone with such values, and
vouches for nothing that it has not seen. What it cannot see is a model whose types follow no rule by values; the proof
of `row_wise`, which comes first, refuses those.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.protocols.inputs import Records
from steelyard.worker.kinds import Column, column_of, of_module

_SURE = 8  # times that values of these kinds were seen alone, before they are believed to have always this dtype
_MOST_KINDS = 1000  # in one column: more is no rule


@dataclass(frozen=True, slots=True)
class Form:
    """What an output is: its type, names and width, and its columns."""

    key: Hashable
    columns: tuple[Column, ...]


class Evidence:
    """What requests that ran alone have shown of one way of predicting. Used by several threads at once."""

    def __init__(self) -> None:
        self.apart = ""  # why no call may be shared any more
        self._key: Hashable | None = None
        self._types: list[dict[Hashable, str]] = []  # of each column, always
        self._times: list[dict[Hashable, int]] = []  # for each column: how often each kind of values was seen

    def learn(self, output: Any, rows: int) -> None:
        """Of a request that ran alone."""
        if self.apart:
            return
        form = form_of(output, rows)
        if form is None:
            self.apart = "the model's output cannot be divided by rows"
            return
        if self._key is None:
            self._types = [{} for _ in form.columns]
            self._times = [{} for _ in form.columns]
            self._key = form.key
        if form.key != self._key:
            self.apart = "the model's output has not always the same form"
            return
        for column, types, times in zip(form.columns, self._types, self._times, strict=True):
            if any(types.setdefault(what, of) != of for what, of in column.types(0, rows)):
                self.apart = "the model's output has not always the same types"
                return
            for kind in column.kinds(0, rows):
                times[kind] = times.get(kind, 0) + 1
            if len(times) > _MOST_KINDS:
                self.apart = "the model's output has too many forms"
                return

    def vouches(self, form: Form, start: int, stop: int) -> bool:
        """Whether these rows of a shared call are what they would have been alone. A contradiction ends all sharing."""
        if self._key is None:
            return False
        if form.key != self._key:
            self.apart = "the model's output has another form when requests share a call"
            return False
        for column, types in zip(form.columns, self._types, strict=True):
            if any(types.get(what, of) != of for what, of in column.types(start, stop)):
                self.apart = "the model's output has other types when requests share a call"
                return False
        pairs = zip(form.columns, self._times, strict=True)
        return all(times.get(kind, 0) >= _SURE for column, times in pairs for kind in column.kinds(start, stop))


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
    if type(output) is dict:
        return _several("dict", tuple(output), list(output.values()), rows)
    if type(output) is Records:
        return _several("records", output.names, list(output.arrays), rows)
    if _is_frame(output):
        columns = [output.iloc[:, place] for place in range(len(output.columns))]
        return _several("frame", tuple(output.columns), columns, rows) if len(output) == rows else None
    return _several(None, (None,), [output], rows)


def _several(kind: str | None, names: tuple[Any, ...], values: list[Any], rows: int) -> Form | None:
    """Columns side by side; without `kind` the only one is all there is."""
    if not values:
        return None
    forms: list[Hashable] = []
    columns: list[Column] = []
    for value in values:
        known = column_of(value, rows)
        if known is None:
            return None
        forms.append((_kind(value), tuple(getattr(value, "shape", ())[1:])))
        columns.append(known)
    labels = tuple((type(name).__name__, name) for name in names)
    return Form((kind, labels, tuple(forms)), tuple(columns))


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
    return type(output).__name__ == "DataFrame" and of_module(output, "pandas")


def _kind(value: Any) -> Hashable:
    """With a series' name, which names the output."""
    return (type(value).__name__, getattr(value, "name", None)) if hasattr(value, "iloc") else type(value).__name__
