"""Small networks: PyTorch modules of all three serialisations, on tensors and on columns, and ONNX graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.zoo.case import ROWS, Case, table_case, tensor_case, tensors_case
from support.zoo.data import asked_frame, classes, training_frame

WIDTH = 6


def _asked() -> NDArray[np.float32]:
    return np.random.default_rng(21).normal(size=(ROWS, WIDTH)).astype(np.float32)


def _layers() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(dim=1)).eval()


def _save_torch(folder: Path, model: Any, example: Any, output: Any, serialization: str) -> Path:
    import mlflow.pytorch
    from mlflow.models import infer_signature

    path = folder / "model"
    mlflow.pytorch.save_model(
        model,
        path,
        signature=infer_signature(example, output),
        input_example=example,
        pip_requirements=[],
        serialization_format=serialization,
    )
    return path


def torch_module(folder: Path, serialization: str = "pickle") -> Case:
    import torch

    model, example = _layers(), _asked()[:4]
    output = model(torch.from_numpy(example)).detach().numpy()
    return tensor_case(_save_torch(folder, model, example, output, serialization), _asked())


def torch_script(folder: Path) -> Case:
    import torch

    model, example = torch.jit.script(_layers()), _asked()[:4]
    output = model(torch.from_numpy(example)).detach().numpy()
    return tensor_case(_save_torch(folder, model, example, output, "pickle"), _asked())


def torch_columns(folder: Path) -> Case:
    """The same network behind a signature of columns: a table in, a table out."""
    import torch

    model, frame = _layers(), training_frame().head(4)
    output = model(torch.from_numpy(frame.to_numpy(np.float32))).detach().numpy()
    return table_case(_save_torch(folder, model, frame, output, "pickle"), asked_frame())


def torch_images(folder: Path) -> Case:
    """A convolution over 1 × 8 × 8 pictures."""
    import torch
    from torch import nn

    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    pictures = np.random.default_rng(22).random((ROWS, 1, 8, 8), np.float32)
    output = model(torch.from_numpy(pictures[:2])).detach().numpy()
    return tensor_case(_save_torch(folder, model, pictures[:2], output, "pickle"), pictures)


def _graph(inputs: list[tuple[str, int]], outputs: tuple[str, ...] = ("label", "scores")) -> Any:
    """Inputs side by side, a matrix product; the best class, its score and all scores as outputs."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    weights = numpy_helper.from_array(rng.normal(size=(WIDTH, 3)).astype(np.float32), "weights")
    nodes = [
        helper.make_node("Concat", [name for name, _ in inputs], ["joined"], axis=1),
        helper.make_node("MatMul", ["joined", "weights"], ["products"]),
        helper.make_node("Softmax", ["products"], ["scores"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
        helper.make_node("ReduceMax", ["scores"], ["best"], axes=[1], keepdims=0),
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, width]) for name, width in inputs]
    results = {
        "label": helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
        "best": helper.make_tensor_value_info("best", TensorProto.FLOAT, [None]),
        "scores": helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3]),
    }
    graph = helper.make_graph(nodes, "scores", given, [results[name] for name in outputs], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _save_onnx(folder: Path, model: Any, example: Any) -> Path:
    import mlflow.onnx
    from mlflow.models import infer_signature

    path = folder / "model"
    mlflow.onnx.save_model(model, path, signature=infer_signature(example), input_example=example, pip_requirements=[])
    return path


def onnx_tensor(folder: Path) -> Case:
    path = _save_onnx(folder, _graph([("x", WIDTH)]), _asked()[:3])
    return tensor_case(path, _asked())


def onnx_named_tensors(folder: Path) -> Case:
    asked = _asked()
    arrays = {"left": asked[:, :4], "right": asked[:, 4:]}
    path = _save_onnx(folder, _graph([("left", 4), ("right", 2)]), {name: array[:3] for name, array in arrays.items()})
    return tensors_case(path, arrays)


def onnx_columns(folder: Path) -> Case:
    """One matrix behind a signature of 32-bit columns; MLflow makes a table of two flat outputs."""
    frame = asked_frame().astype(np.float32)
    return table_case(_save_onnx(folder, _graph([("x", WIDTH)], ("label", "best")), frame.head(3)), frame)


def onnx_from_sklearn(folder: Path) -> Case:
    """A classifier converted by skl2onnx, probabilities as an array."""
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    frame = training_frame()
    model = LogisticRegression(max_iter=500).fit(frame.to_numpy(np.float32), classes(frame))
    sample = frame.to_numpy(np.float32)[:3]
    converted = to_onnx(model, sample, options={"zipmap": False})
    return tensor_case(_save_onnx(folder, converted, sample), asked_frame().to_numpy(np.float32))


MODELS: dict[str, Callable[[Path], Case]] = {
    "torch-module": torch_module,
    "torch-exported-program": partial(torch_module, serialization="pt2"),
    "torch-script": torch_script,
    "torch-columns": torch_columns,
    "torch-images": torch_images,
    "onnx-tensor": onnx_tensor,
    "onnx-named-tensors": onnx_named_tensors,
    "onnx-columns": onnx_columns,
    "onnx-from-sklearn": onnx_from_sklearn,
}
