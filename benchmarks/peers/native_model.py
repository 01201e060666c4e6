"""Loads a model with its own library, for the peers whose users write the server's code themselves.

Imported by their server files, in their environments; needs nothing of the platform.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def load_predict(folder: str) -> Callable[[Any], Any]:
    """`predict` of the model in `folder`: an array of shape (rows, columns) to an array of one value per row."""
    booster = Path(folder) / "model.txt"
    if booster.exists():
        import lightgbm

        model = lightgbm.Booster(model_file=str(booster))
        return lambda rows: model.predict(rows, num_threads=1)
    import joblib

    return joblib.load(Path(folder) / "model.joblib").predict
