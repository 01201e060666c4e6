"""The proof: a candidate is equal to the model's own predict on many generated rows and at its decision boundaries.

The reference is asked once, in a `Trial`; every candidate is then compared with the same answers. Called by the
selection. What equality here does not say: a difference on rows that no generated row resembles and that lie beside no
boundary that was found, such as one leaf deep in a tree that none of the rows reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from numpy.random import Generator

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.schema import InputSchema
from steelyard.runtimes.proof.asking import Asker, Case
from steelyard.runtimes.proof.boundaries import find_boundaries
from steelyard.runtimes.proof.compare import Tally, compare
from steelyard.runtimes.proof.layout import Hints, NoLayout, layout_of
from steelyard.runtimes.proof.outcome import Predict
from steelyard.runtimes.proof.rows import make_batches

_ROW_CALLS = 400  # of the reference for generated rows; some 50 are needed when it refuses none
_MIN_ANSWERED = 8  # one in that many rows must be answered, or equality would say little
_PROBE_ROWS = 8
_MAX_PROBES = 24


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` that were compared; `reason` is a sentence for the endpoint's events, without any row's values."""

    equal: bool
    rows: int
    reason: str


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to ask the reference: rows, and calls (of at most `boundary_rows`) that look for boundaries."""

    rows: int = 2048
    boundary_calls: int = 200
    boundary_rows: int = 512


FULL = Effort()


class Trial:
    """Generates rows and asks the reference for them, once; then compares any number of candidates.

    `cases` is what the reference said. `refusal` is a sentence where no proof is possible, None otherwise.
    """

    def __init__(
        self,
        reference: Predict,
        schema: InputSchema | None,
        example: Inputs | None,
        hints: Hints | None,
        *,
        rng: Generator,
        effort: Effort = FULL,
    ) -> None:
        self.cases: list[Case] = []
        self.boundaries = 0
        self.refusal: str | None = None
        hints = hints or {}
        try:
            layout = layout_of(schema, example)
            batches = make_batches(layout, example, hints, rng, effort.rows)
        except NoLayout as reason:
            self.refusal = f"refused: no rows can be made for the model, since {reason}"
            return
        asker = Asker(reference, _ROW_CALLS)
        for inputs in batches:
            self.cases += asker.ask(inputs)
        answered = [case for case in self.cases if case.expected.error is None]
        self.refusal = _unfit(reference, answered, sum(inputs.rows for inputs in batches))
        if self.refusal is None:
            asker = Asker(reference, effort.boundary_calls)
            found = find_boundaries(asker, answered, layout, hints, rng=rng, rows_per_call=effort.boundary_rows)
            self.cases += found.cases
            self.boundaries = found.found

    def verdict(self, candidate: Predict) -> Verdict:
        """Compares the candidate with the reference on every case. The same candidate always gets the same verdict."""
        if self.refusal is not None:
            return Verdict(equal=False, rows=0, reason=self.refusal)
        verdict = compare_cases(self.cases, candidate)
        if not verdict.equal or not self.boundaries:
            return verdict
        return Verdict(
            equal=True, rows=verdict.rows, reason=f"{verdict.reason} and at {self.boundaries:,} decision boundaries"
        )

    def probes(self) -> list[Case]:
        """A few small cases of all kinds, for a record: a later start checks them in milliseconds."""
        small = [case for case in self.cases if case.inputs.rows <= _PROBE_ROWS]
        step = max(1, -(-len(small) // _MAX_PROBES))
        return small[::step]


def compare_cases(cases: list[Case], candidate: Predict) -> Verdict:
    """Equal when the candidate says the same in every case; refused with what differs otherwise."""
    tally = Tally()
    refused = 0
    for case in cases:
        differences = compare(case.expected, candidate(case.inputs), case.inputs.rows)
        tally.add(case.inputs.rows, differences)
        refused += case.inputs.rows if case.expected.error is not None else 0
    if tally.differing:
        return Verdict(equal=False, rows=tally.rows, reason=f"refused: {tally.describe()}")
    alike = f" ({refused:,} of them refused by both)" if refused else ""
    return Verdict(equal=True, rows=tally.rows, reason=f"equal on {tally.rows:,} rows{alike}")


def prove(
    reference: Predict,
    candidate: Predict,
    schema: InputSchema | None,
    example: Inputs | None,
    hints: Hints | None = None,
    *,
    rng: Generator,
    rows: int = FULL.rows,
) -> Verdict:
    """Of one candidate; with several, make a `Trial` and ask it for each verdict."""
    return Trial(reference, schema, example, hints, rng=rng, effort=Effort(rows=rows)).verdict(candidate)


def _unfit(reference: Predict, answered: list[Case], asked: int) -> str | None:
    rows = sum(case.inputs.rows for case in answered)
    if rows * _MIN_ANSWERED < asked:
        return f"refused: the model itself answers only {rows:,} of {asked:,} generated rows"
    largest = max(answered, key=lambda case: case.inputs.rows)
    if compare(largest.expected, reference(largest.inputs), largest.inputs.rows):
        return "refused: the model's own answers differ from call to call"
    return None
