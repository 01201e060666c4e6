"""Queries that waited together, answered in as few calls of the model as their rows allow.

Called by a slot's thread. Each query is decoded and rendered on its own; only the rows go together, and only rows of
which the model is given the very same columns, dtypes and nulls as it would be alone. Whatever goes wrong together is
done again one by one, so that an error is nobody's but its own request's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from steelyard.errors import SteelyardError
from steelyard.protocols.inputs import Inputs, join
from steelyard.protocols.query import Answer, Query
from steelyard.worker.answer import Answering, Asked
from steelyard.worker.coroutines import Gone
from steelyard.worker.log import about
from steelyard.worker.parts import divide, form_of

Tell = Callable[[int, "Answer | Exception"], None]

_OWN_DTYPE = {bytes, list, dict, np.ndarray}  # of which pandas makes a column of objects, whatever else is in it
_TEXT = {str, type(None)}


@dataclass(slots=True)
class Tally:
    """What became of the queries: calls of the model, and the rows in them."""

    calls: int = 0
    rows: int = 0


@dataclass(slots=True)
class _Group:
    """Queries whose rows make one call. `places` are theirs among all."""

    places: list[int] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    inputs: list[Inputs] = field(default_factory=list)
    rows: int = 0


class Joined:
    """`tell(place, answer or error)` is called once for each query. Raises Gone when the replica has left."""

    def __init__(
        self, answering: Answering, queries: Sequence[Query], variant: str, most_rows: int, tell: Tell
    ) -> None:
        self._answering = answering
        self._evidence = answering.evidence(variant)
        self._queries = queries
        self._variant = variant
        self._most_rows = most_rows
        self._tell = tell
        self.tally = Tally()

    @property
    def apart(self) -> str:
        """Why this model's requests must not share calls any more; empty as long as they may."""
        return self._evidence.apart

    def run(self) -> Tally:
        for group in self._groups():
            if len(group.places) == 1 or self._evidence.apart or not self._together(group):
                for place, asked in zip(group.places, group.asked, strict=True):
                    self._alone(place, asked)
        return self.tally

    def _groups(self) -> list[_Group]:
        """Faulty queries are answered at once; what cannot be joined is a group of its own."""
        open_groups: dict[Hashable, _Group] = {}
        groups: list[_Group] = []
        for place, query in enumerate(self._queries):
            try:
                with about(query.request_id):
                    asked = self._answering.prepare(query)
            except Exception as error:
                self._tell(place, error)
                continue
            inputs = asked.shareable
            key = alike(inputs) if inputs is not None else None
            group = open_groups.get(key) if key is not None else None
            if group is None or inputs is None or group.rows + inputs.rows > self._most_rows:
                group = _Group()
                groups.append(group)
                if key is not None:
                    open_groups[key] = group
            group.places.append(place)
            group.asked.append(asked)
            if inputs is not None:
                group.inputs.append(inputs)
                group.rows += inputs.rows
        return groups

    def _together(self, group: _Group) -> bool:
        """False when each must run alone after all; nobody has been answered then."""
        joined = join(group.inputs)
        if joined is None:
            return False
        self.tally.calls += 1
        self.tally.rows += joined.rows
        try:
            output = self._answering.predict_rows(joined, self._variant)
        except SteelyardError:
            return False
        form = form_of(output, joined.rows)
        if form is None:
            return False
        start = 0
        parts = divide(output, [inputs.rows for inputs in group.inputs])
        for place, asked, inputs, part in zip(group.places, group.asked, group.inputs, parts, strict=True):
            stop = start + inputs.rows
            if self._evidence.vouches(form, start, stop):
                self._render(place, asked, part)
            else:
                self._alone(place, asked)
            start = stop
        return True

    def _alone(self, place: int, asked: Asked) -> None:
        self.tally.calls += 1
        self.tally.rows += 0 if asked.shareable is None else asked.shareable.rows
        result: Answer | Exception
        with about(self._queries[place].request_id):
            try:
                result = self._answering.answer_prepared(asked, self._variant, learn=True)
            except Gone:
                raise
            except Exception as error:
                result = error
        self._tell(place, result)

    def _render(self, place: int, asked: Asked, part: object) -> None:
        result: Answer | Exception
        try:
            result = asked.answer(part)
        except Exception as error:
            result = error
        self._tell(place, result)


def alike(inputs: Inputs) -> Hashable | None:
    """Inputs with equal keys give the model the same types joined as each gives it alone; None: never joined."""
    if inputs.matrix is not None:
        return (inputs.names, inputs.columnar, inputs.matrix.dtype.str)
    kinds: list[Hashable] = []
    for part in inputs.parts:
        kind: Hashable = None
        if part.dtype == object and inputs.columnar:
            types = set(map(type, part.tolist()))
            if str in types and types <= _TEXT:
                kind = str
            elif len(types) == 1 and (types <= _OWN_DTYPE or types == {type(None)}):
                kind = types.pop()
            else:
                return None  # pandas finds a dtype by the values, which those of others would change
        kinds.append((part.dtype.str, part.shape[1:], kind))
    return (inputs.names, inputs.columnar, tuple(kinds))
