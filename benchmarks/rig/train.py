"""Trains the models of the benchmarks and saves each with MLflow, natively, and with rows and the model's own answers.

`train` does so in a process of its own (`python -m rig.train FOLDER NAME…`), so that the one that measures stays small.
Deterministic for given library versions; downloads nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

SINGLE_ROWS = 16  # one per connection of the load
BATCH_ROWS = 1000


def _linear() -> tuple[Any, Any, Any]:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    features, labels = load_iris(return_X_y=True, as_frame=True)
    return LogisticRegression(max_iter=500).fit(features, labels), features, labels


def _wide() -> tuple[Any, Any, Any]:
    from sklearn.linear_model import LogisticRegression

    features, labels = _made_up(rows=2000, columns=500)
    return LogisticRegression(C=0.01, max_iter=2000).fit(features, labels), features, labels


def _forest() -> tuple[Any, Any, Any]:
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    features, labels = load_digits(return_X_y=True, as_frame=True)
    return RandomForestClassifier(n_estimators=100, random_state=7).fit(features, labels), features, labels


def _lightgbm() -> tuple[Any, Any, Any]:
    import lightgbm

    features, labels = _made_up(rows=5000, columns=30)
    parameters = {"objective": "binary", "num_leaves": 31, "seed": 7, "deterministic": True, "num_threads": 1}
    data = lightgbm.Dataset(features, labels)
    return lightgbm.train(parameters | {"verbose": -1}, data, num_boost_round=200), features, labels


def _made_up(rows: int, columns: int) -> tuple[Any, Any]:
    import pandas
    from sklearn.datasets import make_classification

    features, labels = make_classification(
        n_samples=rows, n_features=columns, n_informative=columns // 3, n_redundant=columns // 10, random_state=7
    )
    return pandas.DataFrame(features, columns=[f"feature_{index:03}" for index in range(columns)]), labels


TRAINERS = {"linear": _linear, "lightgbm": _lightgbm, "forest": _forest, "wide": _wide}
PYTHON, SUMMED = "python", ("a", "b", "c", "d")  # the model of Python code, and its columns
BATCHED = ("linear", "lightgbm", "forest")  # also asked for many rows at once


def save(name: str, folder: Path) -> None:
    """Leaves in `folder`: `mlflow/`, the native file, and `rows.json` with the model's own predictions."""
    import joblib
    import pandas
    from mlflow.models import infer_signature

    model, features, _ = TRAINERS[name]()
    folder.mkdir(parents=True)
    common = {
        "signature": infer_signature(features, model.predict(features)),
        "input_example": features.head(2),
    }
    if name == "lightgbm":
        import mlflow.lightgbm

        mlflow.lightgbm.save_model(model, str(folder / "mlflow"), pip_requirements=_pinned("lightgbm"), **common)
        model.save_model(folder / "model.txt")
    else:
        import mlflow.sklearn

        mlflow.sklearn.save_model(
            model,
            str(folder / "mlflow"),
            pip_requirements=_pinned("scikit-learn", "skops"),
            skops_trusted_types=["sklearn.tree._tree.Tree"],
            **common,
        )
        joblib.dump(model, folder / "model.joblib")
    many = pandas.concat([features] * (BATCH_ROWS // len(features) + 1)).head(BATCH_ROWS)
    values = {
        "columns": list(features.columns),
        "single": features.iloc[:: len(features) // SINGLE_ROWS].head(SINGLE_ROWS),
        "batch": many,
    }
    for key in ("single", "batch"):
        frame = values[key]
        values[key] = {"rows": frame.to_numpy().tolist(), "predictions": model.predict(frame).tolist()}
    (folder / "rows.json").write_text(json.dumps(values))


def save_python(folder: Path) -> None:
    """Leaves `mlflow/` in `folder`: the model of `summing_model.py`, over four columns of doubles."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    inputs = Schema([ColSpec("double", name) for name in SUMMED])
    mlflow.pyfunc.save_model(
        str(folder / "mlflow"),
        python_model=str(Path(__file__).with_name("summing_model.py")),
        signature=ModelSignature(inputs, Schema([ColSpec("double")])),
        pip_requirements=_pinned(),
    )


def _pinned(*packages: str) -> list[str]:
    return [f"{name}=={version(name)}" for name in ("mlflow", "numpy", "pandas", *packages)]


def train(folder: Path, names: list[str]) -> None:
    """All of that in a process of its own. Raises SystemExit with what it said when it fails."""
    print(f"training {', '.join(names)} …", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "rig.train", str(folder), *names]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        target = Path(sys.argv[1]) / wanted
        save_python(target) if wanted == PYTHON else save(wanted, target)
