"""scikit-learn: linear models, forests, boosting, a mixed pipeline, many outputs, outliers, neighbours, kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from support.zoo.case import Case, table_case
from support.zoo.data import (
    NAMES,
    amounts,
    asked_frame,
    asked_mixed,
    classes,
    training_frame,
    training_mixed,
)


def _save(folder: Path, model: Any, frame: Any, predict: str = "predict") -> Path:
    import mlflow.sklearn
    from mlflow.models import infer_signature

    path = folder / "model"
    mlflow.sklearn.save_model(
        model,
        path,
        signature=infer_signature(frame, getattr(model, predict)(frame)),
        input_example=frame.head(3),
        pip_requirements=[],
        serialization_format="cloudpickle",
        pyfunc_predict_fn=predict,
    )
    return path


def _fitted(folder: Path, model: Any, target: Callable[..., Any], *, missing: bool = False, **save: Any) -> Case:
    frame = training_frame(missing=missing)
    model.fit(frame, target(frame))
    return table_case(_save(folder, model, frame, **save), asked_frame(missing=missing))


def _named(frame: Any) -> Any:
    import numpy as np

    return np.array(["low", "middle", "high"])[classes(frame)]


def _several(frame: Any) -> Any:
    import numpy as np

    return np.column_stack([amounts(frame), frame[NAMES[3]] * 3, frame[NAMES[4]] - frame[NAMES[5]]])


def logistic_regression(folder: Path, **save: Any) -> Case:
    from sklearn.linear_model import LogisticRegression

    return _fitted(folder, LogisticRegression(max_iter=500), classes, **save)


def linear_regression(folder: Path) -> Case:
    from sklearn.linear_model import LinearRegression

    return _fitted(folder, LinearRegression(), amounts)


def scaled_logistic_regression(folder: Path) -> Case:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _fitted(folder, make_pipeline(StandardScaler(), LogisticRegression()), _named)


def mixed_pipeline(folder: Path) -> Case:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    transform = ColumnTransformer(
        [
            ("numbers", StandardScaler(), NAMES[:3]),
            ("categories", OneHotEncoder(handle_unknown="ignore"), ["colour", "shape"]),
        ]
    )
    frame = training_mixed()
    model = make_pipeline(transform, LogisticRegression(max_iter=500)).fit(frame, _named(frame))
    return table_case(_save(folder, model, frame), asked_mixed())


def forest_classifier(folder: Path, **save: Any) -> Case:
    from sklearn.ensemble import RandomForestClassifier

    return _fitted(folder, RandomForestClassifier(30, random_state=0), classes, **save)


def forest_regressor(folder: Path) -> Case:
    from sklearn.ensemble import RandomForestRegressor

    return _fitted(folder, RandomForestRegressor(30, random_state=0), amounts)


def forest_of_outputs(folder: Path) -> Case:
    from sklearn.ensemble import RandomForestRegressor

    return _fitted(folder, RandomForestRegressor(20, random_state=0), _several)


def multi_output_regressor(folder: Path) -> Case:
    from sklearn.linear_model import Ridge
    from sklearn.multioutput import MultiOutputRegressor

    return _fitted(folder, MultiOutputRegressor(Ridge()), _several)


def extra_trees(folder: Path) -> Case:
    from sklearn.ensemble import ExtraTreesClassifier

    return _fitted(folder, ExtraTreesClassifier(20, random_state=0), _named)


def isolation_forest(folder: Path) -> Case:
    from sklearn.ensemble import IsolationForest

    frame = training_frame()
    model = IsolationForest(n_estimators=50, random_state=0).fit(frame)
    return table_case(_save(folder, model, frame), asked_frame())


def gradient_boosting_classifier(folder: Path) -> Case:
    from sklearn.ensemble import GradientBoostingClassifier

    return _fitted(folder, GradientBoostingClassifier(n_estimators=20, random_state=0), classes)


def gradient_boosting_regressor(folder: Path) -> Case:
    from sklearn.ensemble import GradientBoostingRegressor

    return _fitted(folder, GradientBoostingRegressor(n_estimators=40, random_state=0), amounts)


def hist_boosting_classifier(folder: Path) -> Case:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _fitted(folder, HistGradientBoostingClassifier(max_iter=20, random_state=0), _named, missing=True)


def hist_boosting_regressor(folder: Path) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return _fitted(folder, HistGradientBoostingRegressor(max_iter=30, random_state=0), amounts, missing=True)


def support_vectors(folder: Path) -> Case:
    from sklearn.svm import SVC

    return _fitted(folder, SVC(), _named)


def neighbours(folder: Path) -> Case:
    from sklearn.neighbors import KNeighborsClassifier

    return _fitted(folder, KNeighborsClassifier(), classes)


MODELS: dict[str, Callable[[Path], Case]] = {
    "sklearn-logistic-regression": logistic_regression,
    "sklearn-logistic-probabilities": partial(logistic_regression, predict="predict_proba"),
    "sklearn-linear-regression": linear_regression,
    "sklearn-scaled-logistic-regression": scaled_logistic_regression,
    "sklearn-mixed-pipeline": mixed_pipeline,
    "sklearn-forest-classifier": forest_classifier,
    "sklearn-forest-probabilities": partial(forest_classifier, predict="predict_proba"),
    "sklearn-forest-regressor": forest_regressor,
    "sklearn-forest-of-outputs": forest_of_outputs,
    "sklearn-multi-output-regressor": multi_output_regressor,
    "sklearn-extra-trees": extra_trees,
    "sklearn-isolation-forest": isolation_forest,
    "sklearn-gradient-boosting-classifier": gradient_boosting_classifier,
    "sklearn-gradient-boosting-regressor": gradient_boosting_regressor,
    "sklearn-hist-boosting-classifier": hist_boosting_classifier,
    "sklearn-hist-boosting-regressor": hist_boosting_regressor,
    "sklearn-support-vectors": support_vectors,
    "sklearn-neighbours": neighbours,
}
