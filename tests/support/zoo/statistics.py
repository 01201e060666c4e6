"""statsmodels: ordinary least squares and generalised linear models, which take the intercept as a column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import Case, table_case
from support.zoo.data import amounts, asked_frame, classes, training_frame


def _fitted(folder: Path, fit: Callable[[Any], Any], scale: float = 1.0) -> Case:
    import mlflow.statsmodels
    from mlflow.models import infer_signature

    frame = training_frame()
    frame.insert(0, "const", 1.0)
    results = fit(frame)
    path = folder / "model"
    mlflow.statsmodels.save_model(
        results,
        path,
        signature=infer_signature(frame, results.predict(frame)),
        input_example=frame.head(3),
        pip_requirements=[],
    )
    asked = asked_frame() * scale
    asked.insert(0, "const", 1.0)
    return table_case(path, asked)


def ordinary_least_squares(folder: Path) -> Case:
    import statsmodels.api

    return _fitted(folder, lambda frame: statsmodels.api.OLS(amounts(frame), frame).fit())


def binomial(folder: Path) -> Case:
    import statsmodels.api

    family = statsmodels.api.families.Binomial()
    return _fitted(folder, lambda frame: statsmodels.api.GLM(classes(frame, 2), frame, family=family).fit())


def poisson(folder: Path) -> Case:
    """Asked about near numbers only: its mean is an exponential."""
    import statsmodels.api

    family = statsmodels.api.families.Poisson()
    return _fitted(folder, lambda frame: statsmodels.api.GLM(classes(frame), frame, family=family).fit(), scale=1e-4)


MODELS: dict[str, Callable[[Path], Case]] = {
    "statsmodels-ols": ordinary_least_squares,
    "statsmodels-binomial": binomial,
    "statsmodels-poisson": poisson,
}
