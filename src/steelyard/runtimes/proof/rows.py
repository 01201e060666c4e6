"""Rows to ask a model, made from its layout, its input example and hints: the usual, the odd and the impossible.

Called once per proof with a seeded generator. Rows of one family share calls, so that what a model refuses (text that
it does not know, infinity) spoils as few answers as possible.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.domains import Array, Domain
from steelyard.runtimes.proof.layout import Field, Hints, Layout, domains_of

BATCH_ROWS = 256
_MAX_CELLS = 8_000_000  # of all rows together
_MAX_BATCH_CELLS = 1_000_000
_ABSENT_ROWS = 8
_MAX_ABSENT = 8

Overlay = Callable[[Domain, Generator, int], Array | None]


def _nothing(domain: Domain, rng: Generator, rows: int) -> Array | None:
    return None


_FAMILIES: dict[str, tuple[float, Overlay]] = {
    "typical": (0.25, _nothing),
    "known": (0.25, lambda domain, rng, rows: domain.known(rng, rows)),
    "wide": (0.125, lambda domain, rng, rows: domain.wide(rng, rows)),
    "edges": (0.125, lambda domain, rng, rows: domain.edges(rng, rows)),
    "missing": (0.125, lambda domain, rng, rows: domain.missing(rows)),
    "large": (0.0625, lambda domain, rng, rows: domain.large(rng, rows)),
    "extreme": (0.03125, lambda domain, rng, rows: domain.extreme(rng, rows)),
    "infinite": (0.03125, lambda domain, rng, rows: domain.infinite(rng, rows)),
}


@dataclass(frozen=True, slots=True)
class _Makers:
    """`known_rows`: rows of the example, at least 1."""

    fields: list[tuple[Field, list[Domain]]]
    known_rows: int


def make_batches(layout: Layout, example: Inputs | None, hints: Hints, rng: Generator, rows: int) -> list[Inputs]:
    """About `rows` rows in calls of 1 to 256; fewer of very large rows. Raises NoLayout.

    Of each family the first rows go alone, as most requests do, some in a small call, and the rest together.
    """
    fields = [(field, domains_of(field, example, hints)) for field in layout.fields]
    makers = _Makers(fields, max(1, example.rows if example is not None else 1))
    rows = max(8, min(rows, _MAX_CELLS // max(1, layout.cells)))
    batches = [example] if example is not None and example.rows and layout.fixed_rows is None else []
    for name, (share, overlay) in _FAMILIES.items():
        arrays = _family(makers, overlay, rng, max(1, round(rows * share)), 0.6 if name == "known" else 0.2)
        if arrays is not None:
            batches += _cut(layout, layout.inputs(arrays))
    return batches + _absent(layout, makers, rng)


def _family(makers: _Makers, overlay: Overlay, rng: Generator, rows: int, mixed: float) -> list[Array] | None:
    """Typical rows, in each of which this family's values replace one value, about half of them, or all.

    `mixed`: the share of rows in which all are replaced. None when no input has such values.
    """
    picks = rng.integers(makers.known_rows, size=rows)
    width = sum(len(domains) for _, domains in makers.fields)
    strength = rng.choice([1.5 / width, 0.5, 1.0], size=rows, p=[(1 - mixed) / 2, (1 - mixed) / 2, mixed])
    mask = rng.random((rows, width)) < strength[:, None]
    turns = min(rows // 2, width)
    mask[:turns] = np.eye(turns, width, dtype=bool)  # each input alone once: an odd value elsewhere cannot hide it
    mask = rng.permutation(mask)
    replaced, place = False, 0
    arrays: list[Array] = []
    for field, domains in makers.fields:
        columns = []
        for domain in domains:
            values = domain.typical(rng, picks)
            over = overlay(domain, rng, rows)
            if over is not None:
                replaced = True
                values = np.where(mask[:, place].reshape(-1, *(1 for _ in values.shape[1:])), over, values)
            columns.append(values)
            place += 1
        whole = len(columns) == 1 and columns[0].shape[1:] == field.tail
        arrays.append(columns[0] if whole else np.stack(columns, axis=1))
    return arrays if replaced or overlay is _nothing else None


def _cut(layout: Layout, inputs: Inputs) -> list[Inputs]:
    if layout.fixed_rows is not None:
        size = layout.fixed_rows
        return [inputs.take(start, start + size) for start in range(0, inputs.rows - size + 1, size)]
    stops = [min(stop, inputs.rows) for stop in (1, 2, 3, 8)]
    step = max(1, min(BATCH_ROWS, _MAX_BATCH_CELLS // max(1, layout.cells)))
    stops += [*range(stops[-1] + step, inputs.rows, step), inputs.rows]
    edges = sorted({0, *stops})
    return [inputs.take(start, stop) for start, stop in itertools.pairwise(edges)]


def _absent(layout: Layout, makers: _Makers, rng: Generator) -> list[Inputs]:
    """Rows that lack optional columns: each of the first few alone, and all of them."""
    optional = [place for place, field in enumerate(layout.fields) if field.optional]
    sets = [frozenset([place]) for place in optional[:_MAX_ABSENT]]
    if len(optional) > 1:
        sets.append(frozenset(optional))
    batches = []
    for without in sets:
        arrays = _family(makers, _nothing, rng, _ABSENT_ROWS, 0.0)
        if arrays is not None and len(without) < len(layout.fields):
            batches += _cut(layout, layout.inputs(arrays, without))
    return batches
