"""The variant `native` gives exactly what pyfunc gives, for a model of each library that has one."""

import msgspec
import numpy as np
import pytest

from steelyard.protocols.inputs import Inputs
from support.workers import Inside

NAMES = ("a", "b", "c")
ROWS = np.random.default_rng(3).normal(size=(60, 3))
LABELS = (ROWS[:, 0] + ROWS[:, 1] > 0).astype(int)


def _sklearn_probabilities(folder, frame, signature):
    import mlflow.sklearn
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(n_estimators=5, random_state=0).fit(frame, LABELS)
    values = {"signature": signature, "pip_requirements": [], "pyfunc_predict_fn": "predict_proba"}
    mlflow.sklearn.save_model(model, folder, serialization_format="cloudpickle", **values)


def _xgboost(folder, frame, signature):
    import mlflow.xgboost
    import xgboost

    model = xgboost.train({"max_depth": 2}, xgboost.DMatrix(frame, LABELS), num_boost_round=5)
    mlflow.xgboost.save_model(model, folder, signature=signature, pip_requirements=[])


def _lightgbm(folder, frame, signature):
    import lightgbm
    import mlflow.lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(frame, LABELS)
    mlflow.lightgbm.save_model(model, folder, signature=signature, pip_requirements=[])


def _catboost(folder, frame, signature):
    import catboost
    import mlflow.catboost

    model = catboost.CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False).fit(frame, LABELS)
    mlflow.catboost.save_model(model, folder, signature=signature, pip_requirements=[])


def _pytorch(folder, frame, signature):
    import mlflow.pytorch
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    values = {"signature": signature, "pip_requirements": [], "serialization_format": "pickle"}
    mlflow.pytorch.save_model(model, folder, **values)


@pytest.mark.parametrize("save", [_sklearn_probabilities, _xgboost, _lightgbm, _catboost, _pytorch])
def test_native_gives_what_pyfunc_gives(tmp_path, save):
    import pandas as pd
    from mlflow.models import infer_signature

    frame = pd.DataFrame(ROWS, columns=list(NAMES))
    save(tmp_path / "m", frame, infer_signature(frame))
    inside = Inside(tmp_path / "m")
    assert inside.model.variants == ("pyfunc", "frame", "native")
    for rows in (ROWS[:1], ROWS):
        outcomes = {
            name: inside.answering.outcome(Inputs(NAMES, len(rows), rows), name) for name in inside.model.variants
        }
        assert outcomes["native"] == outcomes["frame"] == outcomes["pyfunc"]
        assert outcomes["pyfunc"][2] is None
        assert len(msgspec.msgpack.decode(outcomes["native"][0])) == len(rows)
