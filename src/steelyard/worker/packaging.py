"""Makes an MLflow package of a bare model file or folder, so that everything after knows one kind of package only.

`python -m steelyard.worker.packaging KIND PATH OUT` is started by `runtimes/select.py`; it runs in the platform's own
environment, since a bare file names no other. The signature is what the file itself says of its inputs. It exits with
status 1 and one sentence on stdout when the file cannot be read.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steelyard.packages import Kind

_ONNX_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 8: "str", 9: "bool", 11: "float64",
}  # fmt: skip
_HERE: dict[str, Any] = {"pip_requirements": []}  # it runs in this environment; mlflow need not find out what it needs


def main(arguments: list[str]) -> int:
    """Writes the package to the folder OUT, which must not exist."""
    kind, path, out = Kind(arguments[0]), Path(arguments[1]), Path(arguments[2])
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true", TQDM_DISABLE="1")
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            PACKAGERS[kind](path, out)
    except Exception as error:  # whatever the library says of a damaged file
        traceback.print_exc()
        reason = (str(error).strip().splitlines() or [""])[0][:300].rstrip(".")
        print(f"'{path.name}' cannot be read: {type(error).__name__}: {reason}.")  # noqa: T201
        return 1
    return 0


def _onnx(path: Path, out: Path) -> None:
    import mlflow.onnx  # noqa: PLC0415
    import onnx  # noqa: PLC0415

    model = onnx.load(str(path))
    weights = {item.name for item in model.graph.initializer}
    inputs = [item for item in model.graph.input if item.name not in weights]
    mlflow.onnx.save_model(model, str(out), signature=_tensors([_onnx_tensor(item) for item in inputs]), **_HERE)


def _onnx_tensor(item: Any) -> tuple[str, str, tuple[int, ...]]:
    tensor = item.type.tensor_type
    if tensor.elem_type not in _ONNX_TYPES:
        raise ValueError(f"input '{item.name}' has a type that cannot be served")
    sizes = [size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim]
    if sizes:
        sizes[0] = -1  # rows
    return item.name, _ONNX_TYPES[tensor.elem_type], tuple(sizes)


def _lightgbm(path: Path, out: Path) -> None:
    import lightgbm  # noqa: PLC0415
    import mlflow.lightgbm  # noqa: PLC0415

    booster = lightgbm.Booster(model_file=str(path))
    signature = _columns([(name, "double") for name in booster.feature_name()])
    mlflow.lightgbm.save_model(booster, str(out), signature=signature, **_HERE)


def _xgboost(path: Path, out: Path) -> None:
    import mlflow.xgboost  # noqa: PLC0415
    import xgboost  # noqa: PLC0415

    booster = xgboost.Booster(model_file=str(path))
    names = booster.feature_names
    if names is None:
        signature = _tensors([(None, "float32", (-1, booster.num_features()))])
    else:
        signature = _columns([(name, "double") for name in names])
    mlflow.xgboost.save_model(booster, str(out), signature=signature, **_HERE)


def _catboost(path: Path, out: Path) -> None:
    import catboost  # noqa: PLC0415
    import mlflow.catboost  # noqa: PLC0415

    model = catboost.CatBoost().load_model(str(path))
    texts = {*model.get_cat_feature_indices(), *model.get_text_feature_indices()}
    names = enumerate(model.feature_names_)
    signature = _columns([(name, "string" if place in texts else "double") for place, name in names])
    mlflow.catboost.save_model(model, str(out), signature=signature, **_HERE)


def _torchscript(path: Path, out: Path) -> None:
    import mlflow.pytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    model, options = torch.jit.load(str(path), map_location="cpu"), dict(_HERE)
    if "serialization_format" in _parameters(mlflow.pytorch.save_model):
        options["serialization_format"] = "pickle"  # of MLflow's formats the one that TorchScript goes by
    mlflow.pytorch.save_model(model, str(out), **options)


def _sentence_transformers(path: Path, out: Path) -> None:
    import mlflow.sentence_transformers  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    model = SentenceTransformer(str(path), device="cpu", local_files_only=True)
    mlflow.sentence_transformers.save_model(model, str(out), task="llm/v1/embeddings", **_HERE)


def _parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def _columns(columns: list[tuple[str, str]]) -> Any:
    from mlflow.models import ModelSignature  # noqa: PLC0415
    from mlflow.types import ColSpec, Schema  # noqa: PLC0415

    return ModelSignature(inputs=Schema([ColSpec(kind, name) for name, kind in columns]))


def _tensors(tensors: list[tuple[str | None, str, tuple[int, ...]]]) -> Any:
    import numpy as np  # noqa: PLC0415
    from mlflow.models import ModelSignature  # noqa: PLC0415
    from mlflow.types import Schema, TensorSpec  # noqa: PLC0415

    return ModelSignature(inputs=Schema([TensorSpec(np.dtype(kind), shape, name) for name, kind, shape in tensors]))


PACKAGERS: dict[Kind, Callable[[Path, Path], None]] = {
    Kind.ONNX: _onnx,
    Kind.LIGHTGBM: _lightgbm,
    Kind.XGBOOST: _xgboost,
    Kind.CATBOOST: _catboost,
    Kind.TORCHSCRIPT: _torchscript,
    Kind.SENTENCE_TRANSFORMERS: _sentence_transformers,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
