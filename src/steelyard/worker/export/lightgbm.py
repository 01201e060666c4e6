"""LightGBM models as the text that their own library reads, cut to the rounds that predict.

Raises Refused for what only the Python package does: categories of pandas columns, an objective that is a function of
the user's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export.offer import plain_classes, save_arrays
from steelyard.worker.export.pipeline import Plan
from steelyard.worker.export.source import Refused, Source

_MODEL = "model.txt"


def is_lightgbm(estimator: Any) -> bool:
    return type(estimator).__module__.startswith("lightgbm.")


def convert(source: Source, plan: Plan, folder: Path) -> tuple[Artifact, str]:
    """Also the model's text, for hints. Raises Refused."""
    estimator = plan.estimator
    booster = getattr(estimator, "booster_", estimator)
    if booster.pandas_categorical:
        raise Refused("It was trained on pandas categories, which an MLflow signature cannot carry.")
    if booster.num_feature() != plan.width:
        raise Refused("It takes another number of columns than its signature names.")
    text = booster.model_to_string()  # the best iteration, where there is one: what predict uses too
    (folder / _MODEL).write_text(text)
    options = {**_answer(estimator, source.predict), "steps": plan.steps, "width": plan.width}
    files = {"model": _MODEL, **save_arrays(folder, plan.arrays)}
    artifact = Artifact(runtime="lightgbm", features=source.features, files=files, library=_library(), options=options)
    return artifact, text


def _answer(estimator: Any, predict: str) -> dict[str, Any]:
    classifies = hasattr(estimator, "classes_")
    if callable(getattr(estimator, "objective_", None) or getattr(estimator, "_objective", None)):
        raise Refused("Its objective is a function of its author's.")
    if predict == "predict_proba" and classifies:
        return {"finish": "probabilities"}
    if predict != "predict":
        raise Refused(f"The {predict} of {type(estimator).__name__} has no native form.")
    if not classifies:
        return {"finish": "values"}
    classes, dtype = plain_classes(estimator.classes_)
    return {"finish": "labels", "classes": classes, "classes_dtype": dtype}


def _library() -> str:
    from lightgbm import basic  # noqa: PLC0415

    name = getattr(basic._LIB, "_name", "")
    if not Path(name).is_absolute():
        raise Refused("LightGBM does not say where its library is.")
    return str(Path(name).resolve())


def thresholds(text: str) -> dict[int, list[float]]:
    """Split points of each column, as the text has them; categorical splits left out."""
    found: dict[int, list[float]] = {}
    features: list[int] = []
    values: list[float] = []
    for line in text.splitlines():
        name, _, rest = line.partition("=")
        if name == "split_feature":
            features = [int(item) for item in rest.split()]
        elif name == "threshold":
            values = [float(item) for item in rest.split()]
        elif name == "decision_type":
            for feature, value, kind in zip(features, values, rest.split(), strict=True):
                if not int(kind) & 1 and np.isfinite(value):
                    found.setdefault(feature, []).append(value)
    return found
