"""Where a model changes its mind: split points and categories per input column, for the rows that the proof makes.

`candidates.py` writes it as `OUT/hints.json`: {"thresholds": {column: [floats]}, "categories": {column: […]}}.
Nothing here must be complete; the proof only looks closer at what is named.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.worker.export.pipeline import Plan
from steelyard.worker.export.source import Source
from steelyard.worker.export.tree_text import Tree

_FILE = "hints.json"
_MOST = 64  # categories of a column
_MOST_THRESHOLDS = 2048  # all of most models: the proof finds more boundaries where none is left out


def of_trees(trees: Sequence[Tree]) -> dict[int, list[float]]:
    """Split points by column of the matrix."""
    found: dict[int, list[float]] = {}
    for tree in trees:
        for node in np.flatnonzero(np.asarray(tree.left) >= 0):
            value = float(tree.threshold[node])
            if np.isfinite(value):
                found.setdefault(int(tree.feature[node]), []).append(value)
    return found


def write(out: Path, source: Source, plan: Plan, thresholds: dict[int, list[float]]) -> None:
    named: dict[str, list[float]] = {}
    features = source.features or []
    for column, values in thresholds.items():
        place = plan.origin[column] if column < len(plan.origin) else None
        if place is not None and place < len(features):
            named[str(features[place])] = _sample(values)
    hints: dict[str, Any] = {"thresholds": named, "categories": {}}
    for name, known in plan.categories.items():
        hints["categories"][name] = [value for value in known if value is not None][:_MOST]
    if named or hints["categories"]:
        (out / _FILE).write_text(json.dumps(hints))


def _sample(values: Sequence[float]) -> list[float]:
    ordered = sorted(set(values))
    if len(ordered) <= _MOST_THRESHOLDS:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (_MOST_THRESHOLDS - 1))] for place in range(_MOST_THRESHOLDS)]
