"""Asks the reference, within a number of calls, and keeps every answer as a case that candidates are compared with.

A call that the model refuses is halved until it is known which rows are to blame, as far as the calls allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.outcome import Outcome, Predict, split_rows

HALVINGS = 24  # further calls for one refused call: finds one bad row in 256, or shows that most are bad
_SINGLES = 8  # rows of what is still refused then that are asked alone


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the reference. A candidate is given the same call and must say `expected`."""

    inputs: Inputs
    expected: Outcome

    @property
    def answers(self) -> list[Any] | None:
        """One per row; None when the model refused or its output is not by row."""
        return None if self.expected.error is not None else split_rows(self.expected.plain, self.inputs.rows)


class Asker:
    """Counts down `calls`; at 0 nothing more is asked."""

    def __init__(self, predict: Predict, calls: int) -> None:
        self._predict = predict
        self.calls = calls

    def ask(self, inputs: Inputs, halvings: int = HALVINGS) -> list[Case]:
        """Cases that cover all rows in their order, then single rows of the parts that were refused as a whole.

        Empty when no calls are left.
        """
        if self.calls <= 0:
            return []
        done: list[tuple[int, Case]] = []
        waiting = deque([(0, self._one(inputs, 0, inputs.rows))])
        while waiting:
            start, case = waiting.popleft()
            rows = case.inputs.rows
            if case.expected.error is None or rows == 1 or halvings < 2 or self.calls < 2:
                done.append((start, case))
                continue
            halvings -= 2
            middle, stop = start + rows // 2, start + rows
            waiting += [(start, self._one(inputs, start, middle)), (middle, self._one(inputs, middle, stop))]
        done.sort(key=lambda item: item[0])
        refused = [
            start + case.inputs.rows // 2 for start, case in done if case.expected.error and case.inputs.rows > 1
        ]
        singles = [self._one(inputs, row, row + 1) for row in refused[: min(_SINGLES, self.calls)]]
        return [case for _, case in done] + singles

    def _one(self, inputs: Inputs, start: int, stop: int) -> Case:
        self.calls -= 1
        part = inputs if (start, stop) == (0, inputs.rows) else inputs.take(start, stop)
        return Case(part, self._predict(part))


def answered_rows(cases: list[Case]) -> Iterator[tuple[Case, list[Any]]]:
    """The cases that have one answer per row."""
    for case in cases:
        answers = case.answers
        if answers is not None:
            yield case, answers
