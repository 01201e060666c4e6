"""XGBoost by both its APIs: classes, amounts, probabilities; with missing values and with a categorical column.

MLflow's signatures have no category type, so the categorical column holds codes and the model knows by its
`feature_types` that they are categories.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import Case, table_case
from support.zoo.data import amounts, asked_frame, classes, coded_asked, coded_training, training_frame

CODED = ["c", "float", "float", "float", "float"]


def _save(folder: Path, model: Any, frame: Any, output: Any) -> Path:
    import mlflow.xgboost
    from mlflow.models import infer_signature

    path = folder / "model"
    signature = infer_signature(frame, output)
    mlflow.xgboost.save_model(model, path, signature=signature, input_example=frame.head(3), pip_requirements=[])
    return path


def _estimator(folder: Path, model: Any, frame: Any, target: Any, asked: Any) -> Case:
    model.fit(frame, target)
    return table_case(_save(folder, model, frame, model.predict(frame)), asked)


def _booster(folder: Path, settings: dict[str, Any], target: Callable[..., Any]) -> Case:
    import xgboost

    frame = training_frame(missing=True)
    data = xgboost.DMatrix(frame, target(frame))
    model = xgboost.train({"max_depth": 4, "nthread": 1, **settings}, data, 30)
    return table_case(_save(folder, model, frame, model.predict(data)), asked_frame(missing=True))


def classifier(folder: Path) -> Case:
    from xgboost import XGBClassifier

    frame = training_frame(missing=True)
    model = XGBClassifier(n_estimators=20, max_depth=4, n_jobs=1)
    return _estimator(folder, model, frame, classes(frame), asked_frame(missing=True))


def two_class_classifier(folder: Path) -> Case:
    from xgboost import XGBClassifier

    frame = training_frame()
    model = XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1)
    return _estimator(folder, model, frame, classes(frame, 2), asked_frame())


def regressor(folder: Path) -> Case:
    from xgboost import XGBRegressor

    frame = training_frame(missing=True)
    model = XGBRegressor(n_estimators=30, max_depth=4, n_jobs=1)
    return _estimator(folder, model, frame, amounts(frame), asked_frame(missing=True))


def categorical_classifier(folder: Path) -> Case:
    from xgboost import XGBClassifier

    frame = coded_training(missing=True)
    target = (frame["code"] % 3 + (amounts(frame) > 0)).astype(int)
    model = XGBClassifier(n_estimators=20, max_depth=4, n_jobs=1, enable_categorical=True, feature_types=CODED)
    return _estimator(folder, model, frame, target, coded_asked(missing=True))


def categorical_regressor(folder: Path) -> Case:
    from xgboost import XGBRegressor

    frame = coded_training()
    target = frame["code"].map({0: 5.0, 1: -3.0, 2: 0.0, 3: 8.0, 4: -9.0}) + amounts(frame)
    settings = {"enable_categorical": True, "feature_types": CODED, "max_cat_to_onehot": 1}
    model = XGBRegressor(n_estimators=20, max_depth=4, n_jobs=1, **settings)
    return _estimator(folder, model, frame, target, coded_asked())


def booster(folder: Path) -> Case:
    return _booster(folder, {"objective": "reg:squarederror"}, amounts)


def binary_booster(folder: Path) -> Case:
    return _booster(folder, {"objective": "binary:logistic"}, lambda frame: classes(frame, 2))


def multi_class_booster(folder: Path) -> Case:
    return _booster(folder, {"objective": "multi:softprob", "num_class": 3}, classes)


MODELS: dict[str, Callable[[Path], Case]] = {
    "xgboost-classifier": classifier,
    "xgboost-two-class-classifier": two_class_classifier,
    "xgboost-regressor": regressor,
    "xgboost-categorical-classifier": categorical_classifier,
    "xgboost-categorical-regressor": categorical_regressor,
    "xgboost-booster": booster,
    "xgboost-binary-booster": binary_booster,
    "xgboost-multi-class-booster": multi_class_booster,
}
