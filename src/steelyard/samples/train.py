"""Trains the two classic samples on scikit-learn's own data sets and saves them as MLflow models.

Called only by `prepare` in the process that `python -m steelyard.samples` starts, since it imports mlflow,
scikit-learn and LightGBM. Deterministic: the same library versions give the same predictions. It downloads nothing.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from steelyard.samples.catalog import BREAST_CANCER, IRIS


def train_iris(target: Path) -> None:
    """Logistic regression on the iris data, with signature and input example, saved in the folder `target`."""
    import mlflow.sklearn  # noqa: PLC0415
    from mlflow.models import infer_signature  # noqa: PLC0415
    from sklearn.datasets import load_iris  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    features, species = load_iris(return_X_y=True, as_frame=True)
    features = features[IRIS.request["dataframe_split"]["columns"]]
    model = LogisticRegression(max_iter=500).fit(features, species)
    mlflow.sklearn.save_model(
        model,
        str(target),
        signature=infer_signature(features, model.predict(features)),
        input_example=features.head(2),
        pip_requirements=_pinned("scikit-learn", "skops", "numpy", "pandas"),
    )


def train_breast_cancer(target: Path) -> None:
    """Gradient-boosted trees for the probability of malignancy, saved in the folder `target`.

    Five of the data set's thirty measurements, so that a request fits on a line.
    """
    import lightgbm  # noqa: PLC0415
    import mlflow.lightgbm  # noqa: PLC0415
    from mlflow.models import infer_signature  # noqa: PLC0415
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415

    features, benign = load_breast_cancer(return_X_y=True, as_frame=True)
    features = features[list(BREAST_CANCER.request["dataframe_records"][0])]
    parameters: dict[str, Any] = {
        "objective": "binary",
        "learning_rate": 0.1,
        "num_leaves": 15,
        "seed": 7,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    # LightGBM rewrites spaces in column names; numbers keep the names that the client sends out of its sight.
    booster = lightgbm.train(parameters, lightgbm.Dataset(features.to_numpy(), 1 - benign), num_boost_round=60)
    mlflow.lightgbm.save_model(
        booster,
        str(target),
        signature=infer_signature(features, booster.predict(features.to_numpy())),
        input_example=features.head(2),
        pip_requirements=_pinned("lightgbm", "numpy", "pandas"),
    )


def _pinned(*packages: str) -> list[str]:
    """Exact requirements, given by hand because MLflow's own inference starts another interpreter for many seconds."""
    return [f"{package}=={version(package)}" for package in packages]
