"""scikit-learn's linear models as a matrix and a way to finish: found by trying, not by listing classes.

An estimator that has coefficients is linear if one of the known ways reproduces its own answers on a few hundred rows;
so a new release's new class, or its changed formula, is taken or refused for what it does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export.offer import plain_classes, save_arrays
from steelyard.worker.export.pipeline import Plan
from steelyard.worker.export.source import Refused, Source

_ROWS = 256
_SCALES = (0.01, 1.0, 10.0, 1000.0)


def is_linear(estimator: Any) -> bool:
    return hasattr(estimator, "coef_") and hasattr(estimator, "intercept_")


def convert(source: Source, plan: Plan, folder: Path) -> Artifact:
    """Raises Refused."""
    estimator = plan.estimator
    dtype = np.dtype(np.float64) if plan.steps else source.joint_dtype
    coef = _dense(estimator.coef_)
    if coef.ndim > 2 or coef.shape[-1] != plan.width:
        raise Refused("Its coefficients do not belong to its input columns.")
    weights = np.atleast_2d(coef).T
    intercept = np.broadcast_to(np.asarray(estimator.intercept_), (weights.shape[1],))
    computed = np.result_type(dtype, weights.dtype)
    if computed not in (np.dtype(np.float32), np.dtype(np.float64)):
        computed = np.dtype(np.float64)
    weights, intercept = weights.astype(computed), intercept.astype(computed)
    rows = _rows(plan.width, dtype)
    wanted = np.asarray(getattr(estimator, source.predict)(rows))
    options = _finish(estimator, source.predict, rows.astype(computed).dot(weights) + intercept, wanted)
    options["steps"] = plan.steps
    options["width"] = plan.width if not plan.steps else _given_width(source, plan)
    files = save_arrays(folder, {**plan.arrays, "coef": weights, "intercept": intercept})
    return Artifact(runtime="linear", features=source.features, dtype=computed.name, files=files, options=options)


def _given_width(source: Source, plan: Plan) -> int | None:
    return None if source.features is not None else plan.width


def _dense(coef: Any) -> Any:
    return np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef)


def _rows(width: int, dtype: np.dtype[Any]) -> Any:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((_ROWS, width)) * np.resize(_SCALES, (_ROWS, 1))
    return (rows > 0) if dtype == np.bool_ else rows.astype(dtype)


def _finish(estimator: Any, predict: str, scores: Any, wanted: Any) -> dict[str, Any]:
    from steelyard.worker.export import arithmetic  # noqa: PLC0415

    if hasattr(estimator, "classes_") and predict == "predict":
        classes, classes_dtype = plain_classes(estimator.classes_)
        single = scores.shape[1] == 1
        places = (scores.ravel() > 0).astype(int) if single else scores.argmax(axis=1)
        if wanted.ndim == 1 and np.array_equal(np.asarray(estimator.classes_)[places], wanted):
            return {
                "finish": "labels",
                "classes": classes,
                "classes_dtype": classes_dtype,
                "scores": scores.shape[1],
            }
    elif predict == "predict_proba":
        for name, chances in arithmetic.chances(scores):
            if arithmetic.same(chances, wanted):
                return {"finish": name}
    elif predict == "predict":
        flat = wanted.ndim == 1
        for link in ("identity", "exp"):
            with np.errstate(over="ignore"):
                values = np.exp(scores) if link == "exp" else scores
            if arithmetic.same(values.ravel() if flat else values, wanted):
                return {"finish": "values", "link": link, "flat": flat}
    raise Refused(f"The {predict} of {type(estimator).__name__} is not a linear form of its coefficients.")
