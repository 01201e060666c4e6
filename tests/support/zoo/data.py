"""Seeded rows for the zoo's models: what they learn from and what they are asked about.

The rows asked about differ from those learnt from: another seed, zeros, extremes, missing values where `missing` asks
for them, and categories that training never saw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from support.zoo.case import ROWS

NAMES = ["age", "income", "height", "weight", "Blood pressure (mmHg)", "Σ-score"]
COLOURS = ["red", "green", "blue", "dark blue"]
SHAPES = ["round", "square"]
TRAINING_ROWS = 400
_WORDS = [
    "the",
    "a",
    "small",
    "blue",
    "horse",
    "river",
    "runs",
    "over",
    "under",
    "quick",
    "stone,",
    "near",
    "far",
    "über",
    "42",
    "moon?",
    "rises",
    "sets",
]


def training_frame(*, missing: bool = False) -> pd.DataFrame:
    return _with_gaps(_numbers(1, TRAINING_ROWS), 2) if missing else _numbers(1, TRAINING_ROWS)


def asked_frame(*, missing: bool = False) -> pd.DataFrame:
    frame = _numbers(11, ROWS)
    frame.iloc[0] = 0.0
    frame.iloc[1] = 1e6
    frame.iloc[2] = -1e6
    return _with_gaps(frame, 12) if missing else frame


def training_mixed() -> pd.DataFrame:
    """Three numbers and two categories."""
    return _mixed(training_frame(), 3, COLOURS, SHAPES)


def asked_mixed() -> pd.DataFrame:
    """The same with categories that training never saw, one of them empty, one not ASCII."""
    return _mixed(asked_frame(), 13, [*COLOURS, "ultraviolet", "größe"], [*SHAPES, ""])


def coded_training(*, missing: bool = False) -> pd.DataFrame:
    """A first column of category codes 0 to 4 in front of the numbers."""
    return _coded(training_frame(missing=missing), 4, 5)


def coded_asked(*, missing: bool = False) -> pd.DataFrame:
    return _coded(asked_frame(missing=missing), 14, 5)


def amounts(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """A target that depends on several columns, without missing values."""
    numbers = frame[NAMES[:3]].fillna(0.5).to_numpy()
    return numbers[:, 0] * 2 - np.abs(numbers[:, 1]) + np.sin(numbers[:, 2])


def classes(frame: pd.DataFrame, count: int = 3) -> np.ndarray[Any, Any]:
    """The same target in so many classes of about equal size."""
    target = amounts(frame)
    return np.digitize(target, np.quantile(target, np.arange(1, count) / count)).astype(np.int64)


def words(seed: int, count: int) -> list[str]:
    """Short sentences."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(_WORDS, size=rng.integers(1, 9))) for _ in range(count)]


def _numbers(seed: int, count: int) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(seed).normal(0, 2, (count, len(NAMES))), columns=NAMES)


def _with_gaps(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    gaps = np.random.default_rng(seed).random(frame.shape) < 0.1
    return frame.mask(gaps)


def _mixed(frame: pd.DataFrame, seed: int, colours: list[str], shapes: list[str]) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    mixed = frame[NAMES[:3]].copy()
    mixed.insert(1, "colour", rng.choice(colours, len(frame)).astype(object))
    mixed["shape"] = rng.choice(shapes, len(frame)).astype(object)
    return mixed


def _coded(frame: pd.DataFrame, seed: int, codes: int) -> pd.DataFrame:
    coded = frame[NAMES[:4]].copy()
    coded.insert(0, "code", np.random.default_rng(seed).integers(0, codes, len(frame)).astype(np.int64))
    return coded
