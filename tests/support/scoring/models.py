"""The models that the table's requests go to: a signature each, and code that tells what arrived.

Saved once per test run; both servers load the same files.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("sources")
KINDS = ("long", "integer", "double", "float", "boolean", "string", "datetime", "binary")


@cache
def signatures() -> dict[str, Any]:
    """Model → its signature; None for none."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType, Array, Map, Object, Property

    def columns(*specs: Any) -> Any:
        return ModelSignature(Schema(list(specs)))

    def tensors(*specs: Any) -> Any:
        return ModelSignature(Schema([TensorSpec(np.dtype(dtype), shape, name) for dtype, shape, name in specs]))

    params = [
        ParamSpec("text", DataType.string, "a"),
        ParamSpec("count", DataType.long, 5),
        ParamSpec("rate", DataType.double, 0.5),
        ParamSpec("flag", DataType.boolean, False),
        ParamSpec("since", DataType.datetime, np.datetime64("2024-01-01T00:00:00")),
        ParamSpec("steps", DataType.long, [1, 2], (-1,)),
    ]
    person = Object([Property("id", DataType.long), Property("name", DataType.string, required=False)])
    single = {kind: columns(ColSpec(kind, "x")) for kind in KINDS}
    optional = {f"{kind}?": columns(ColSpec("long", "k"), ColSpec(kind, "x", required=False)) for kind in KINDS}
    return {
        **single,
        **optional,
        "table": columns(ColSpec("long", "a"), ColSpec("double", "b"), ColSpec("string", "c")),
        "unicode": columns(ColSpec("double", "größe (m²)"), ColSpec("string", "名前")),
        "unnamed": columns(ColSpec("double"), ColSpec("long")),
        "texts": columns(ColSpec("string")),
        "tensor": tensors(("float32", (-1, 2), None)),
        "integers": tensors(("int64", (-1, 2), None)),
        "bytes": tensors(("uint8", (-1, 2, 2), None)),
        "flags": tensors(("bool", (-1,), None)),
        "words": tensors(("object", (-1,), None)),
        "named tensor": tensors(("float64", (-1, 2), "x")),
        "tensors": tensors(("int64", (-1,), "x"), ("float64", (-1, 2), "y")),
        "arrays": columns(
            ColSpec(Array(DataType.double), "v"), ColSpec(Array(DataType.string), "tags", required=False)
        ),
        "matrix": columns(ColSpec(Array(Array(DataType.long)), "m")),
        "object": columns(ColSpec(person, "p")),
        "map": columns(ColSpec(Map(DataType.double), "m")),
        "any": columns(ColSpec(AnyType(), "x")),
        "params": ModelSignature(Schema([ColSpec("double", "x")]), params=ParamSchema(params)),
        "no signature": None,
        "answers": columns(ColSpec("string", "ask")),
        "hinted": None,
    }


def described(name: str) -> str:
    """The signature in a line: `a: long, b: double (optional)`."""
    if name == "hinted":
        return "list of objects with name: str, age: int, note: str or null, by type hints"
    signature = signatures()[name]
    if signature is None:
        return "none"
    inputs = ", ".join(_one(item) for item in signature.inputs.to_dict())
    params = ", ".join(
        f"{item.name}: {item.dtype.name}{' list' if item.shape else ''}" for item in signature.params or ()
    )
    return inputs + (f"; params {params}" if params else "")


def _one(item: dict[str, Any]) -> str:
    if item["type"] == "tensor":
        spec = item["tensor-spec"]
        text = f"tensor of {spec['dtype']} {list(spec['shape'])}"
    else:
        text = _type(item) + ("" if item.get("required", True) else " (optional)")
    return f"{item['name']}: {text}" if "name" in item else text


def _type(item: dict[str, Any]) -> str:
    if item["type"] == "array":
        return f"array of {_type(item['items'])}"
    if item["type"] == "map":
        return f"map of {_type(item['values'])}"
    if item["type"] == "object":
        fields = ", ".join(
            f"{name}: {_type(field)}{'' if field.get('required', True) else ' (optional)'}"
            for name, field in item["properties"].items()
        )
        return f"object of {fields}"
    return str(item["type"])


def save(name: str, root: Path) -> Path:
    """Save the model of that name under `root`, if it is not there yet; returns its folder."""
    import mlflow.pyfunc

    path = root / name.replace(" ", "-").replace("?", "-optional")
    if not path.exists():
        source = {"answers": "answers.py", "hinted": "hinted.py"}.get(name, "echo.py")
        mlflow.pyfunc.save_model(
            path, python_model=str(SOURCES / source), signature=signatures()[name], pip_requirements=[]
        )
    return path
