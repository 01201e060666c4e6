"""CatBoost: amounts with missing values, classes with string categories that training never saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import Case, table_case
from support.zoo.data import amounts, asked_frame, asked_mixed, classes, training_frame, training_mixed

QUIET = {"verbose": False, "thread_count": 1, "random_seed": 1, "allow_writing_files": False, "iterations": 30}


def _save(folder: Path, model: Any, frame: Any) -> Path:
    import mlflow.catboost
    from mlflow.models import infer_signature

    path = folder / "model"
    signature = infer_signature(frame, model.predict(frame))
    mlflow.catboost.save_model(model, path, signature=signature, input_example=frame.head(3), pip_requirements=[])
    return path


def regressor(folder: Path) -> Case:
    from catboost import CatBoostRegressor

    frame = training_frame(missing=True)
    model = CatBoostRegressor(**QUIET).fit(frame, amounts(frame))
    return table_case(_save(folder, model, frame), asked_frame(missing=True))


def two_class_classifier(folder: Path) -> Case:
    from catboost import CatBoostClassifier

    frame = training_frame(missing=True)
    model = CatBoostClassifier(**QUIET).fit(frame, classes(frame, 2))
    return table_case(_save(folder, model, frame), asked_frame(missing=True))


def categorical_classifier(folder: Path) -> Case:
    import numpy as np
    from catboost import CatBoostClassifier

    frame = training_mixed()
    labels = np.array(["low", "middle", "high"])[classes(frame)]
    model = CatBoostClassifier(**QUIET, cat_features=["colour", "shape"]).fit(frame, labels)
    return table_case(_save(folder, model, frame), asked_mixed())


MODELS: dict[str, Callable[[Path], Case]] = {
    "catboost-regressor": regressor,
    "catboost-two-class-classifier": two_class_classifier,
    "catboost-categorical-classifier": categorical_classifier,
}
