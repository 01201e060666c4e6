"""LightGBM by both its APIs, with missing values, string labels and a categorical column of codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import Case, table_case
from support.zoo.data import amounts, asked_frame, classes, coded_asked, coded_training, training_frame

QUIET = {"verbose": -1, "num_threads": 1, "deterministic": True, "seed": 1}


def _save(folder: Path, model: Any, frame: Any) -> Path:
    import mlflow.lightgbm
    from mlflow.models import infer_signature

    path = folder / "model"
    mlflow.lightgbm.save_model(
        model,
        path,
        signature=infer_signature(frame, model.predict(frame)),
        input_example=frame.head(3),
        pip_requirements=[],
        serialization_format="cloudpickle",
    )
    return path


def _booster(folder: Path, settings: dict[str, Any], target: Callable[..., Any]) -> Case:
    import lightgbm

    frame = training_frame(missing=True)
    model = lightgbm.train({**QUIET, **settings}, lightgbm.Dataset(frame, target(frame)), 30)
    return table_case(_save(folder, model, frame), asked_frame(missing=True))


def classifier(folder: Path) -> Case:
    import numpy as np
    from lightgbm import LGBMClassifier

    frame = training_frame(missing=True)
    labels = np.array(["low", "middle", "high"])[classes(frame)]
    model = LGBMClassifier(n_estimators=20, **QUIET).fit(frame, labels)
    return table_case(_save(folder, model, frame), asked_frame(missing=True))


def two_class_classifier(folder: Path) -> Case:
    from lightgbm import LGBMClassifier

    frame = training_frame(missing=True)
    model = LGBMClassifier(n_estimators=20, **QUIET).fit(frame, classes(frame, 2))
    return table_case(_save(folder, model, frame), asked_frame(missing=True))


def regressor(folder: Path) -> Case:
    from lightgbm import LGBMRegressor

    frame = training_frame(missing=True)
    model = LGBMRegressor(n_estimators=30, **QUIET).fit(frame, amounts(frame))
    return table_case(_save(folder, model, frame), asked_frame(missing=True))


def categorical_regressor(folder: Path) -> Case:
    from lightgbm import LGBMRegressor

    frame = coded_training(missing=True)
    target = frame["code"].map({0: 5.0, 1: -3.0, 2: 0.0, 3: 8.0, 4: -9.0}) + amounts(frame)
    model = LGBMRegressor(n_estimators=20, **QUIET).fit(frame, target, categorical_feature=["code"])
    return table_case(_save(folder, model, frame), coded_asked(missing=True))


def booster(folder: Path) -> Case:
    return _booster(folder, {"objective": "regression"}, amounts)


def binary_booster(folder: Path) -> Case:
    return _booster(folder, {"objective": "binary"}, lambda frame: classes(frame, 2))


def multi_class_booster(folder: Path) -> Case:
    return _booster(folder, {"objective": "multiclass", "num_class": 3}, classes)


MODELS: dict[str, Callable[[Path], Case]] = {
    "lightgbm-classifier": classifier,
    "lightgbm-two-class-classifier": two_class_classifier,
    "lightgbm-regressor": regressor,
    "lightgbm-categorical-regressor": categorical_regressor,
    "lightgbm-booster": booster,
    "lightgbm-binary-booster": binary_booster,
    "lightgbm-multi-class-booster": multi_class_booster,
}
