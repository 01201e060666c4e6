"""Small real models that tests deploy, with the predictions that they make outside the platform."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SavedModel:
    """An MLflow model on disk, a few rows in two MLflow forms, and the model's own answer to them."""

    uri: str
    split: dict[str, Any]
    records: list[dict[str, Any]]
    predictions: list[Any] = field(default_factory=list)


def save_iris_classifier(folder: Path) -> SavedModel:
    """A scikit-learn classifier with signature and input example."""
    import mlflow.sklearn
    from mlflow.models import infer_signature
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    frame = load_iris(as_frame=True)
    rows = frame.data.iloc[::25]
    model = LogisticRegression(max_iter=500).fit(frame.data, frame.target)
    mlflow.sklearn.save_model(
        model,
        folder,
        signature=infer_signature(frame.data, model.predict(frame.data)),
        input_example=rows.head(2),
        pip_requirements=[],
    )
    split = rows.to_dict(orient="split")
    return SavedModel(
        uri=str(folder),
        split={"columns": split["columns"], "data": split["data"]},
        records=rows.to_dict(orient="records"),
        predictions=model.predict(rows).tolist(),
    )


def save_python_model(folder: Path, body: str) -> str:
    """A pyfunc model from code: `body` is the source of a class `Model(PythonModel)`. Returns its URI."""
    import mlflow.pyfunc

    source = folder.parent / f"{folder.name}_code.py"
    source.write_text(
        "import os, time, signal, pathlib\n"
        "from mlflow.pyfunc import PythonModel\n"
        "from mlflow.models import set_model\n\n\n"
        f"{body}\n\n\nset_model(Model())\n"
    )
    mlflow.pyfunc.save_model(folder, python_model=str(source), pip_requirements=[])
    return str(folder)
