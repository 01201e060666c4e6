"""Models that users write themselves: artifacts, code paths and params; type hints; every column type."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import ROWS, Case, items_case, table_case
from support.zoo.data import words

SOURCES = Path(__file__).with_name("sources")


def save_code(folder: Path, source: str, **options: Any) -> Path:
    import mlflow.pyfunc

    path = folder / "model"
    mlflow.pyfunc.save_model(path, python_model=str(SOURCES / source), pip_requirements=[], **options)
    return path


def _tariff(folder: Path, params: dict[str, Any] | None) -> Case:
    import numpy as np
    import pandas as pd
    from mlflow.models import infer_signature

    (folder / "rates.json").write_text(json.dumps({"north": 1.25, "south": 0.8, "ost": 1.1}))
    rng = np.random.default_rng(41)
    frame = pd.DataFrame(
        {
            "amount": rng.gamma(2, 20, ROWS),
            "region": rng.choice(["north", "south", "ost", "nowhere", "süd"], ROWS).astype(object),
            "express": rng.random(ROWS) < 0.3,
        }
    )
    defaults = {"floor": 2.5, "currency": "EUR", "steps": [0, 1]}
    path = save_code(
        folder,
        "tariff_model.py",
        artifacts={"rates": str(folder / "rates.json")},
        code_paths=[str(SOURCES / "pricing")],
        signature=infer_signature(frame, [{"price": 1.0, "currency": "EUR"}], params=defaults),
        input_example=frame.head(2),
    )
    return table_case(path, frame, params)


def artifacts_and_code_paths(folder: Path) -> Case:
    return _tariff(folder, None)


def params_given(folder: Path) -> Case:
    return _tariff(folder, {"floor": 30, "steps": [2, 3, 4]})


def type_hints(folder: Path) -> Case:
    import numpy as np

    rng = np.random.default_rng(42)
    articles = words(43, ROWS)
    lines: list[Any] = [{"article": article, "amount": int(rng.integers(0, 99))} for article in articles]
    for line in lines[::2]:
        line["price"] = float(rng.gamma(2, 5))
    for line in lines[::3]:
        line["tags"] = line["article"].split()
    return items_case(save_code(folder, "hinted_model.py", input_example=lines[:3]), lines, "hints")


def column_types(folder: Path) -> Case:
    """Binary cells are base64 in every JSON form; times go as ISO 8601."""
    import numpy as np
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    kinds = ["boolean", "integer", "long", "float", "double", "string", "binary", "datetime"]
    schema = Schema([ColSpec(kind, kind) for kind in kinds] + [ColSpec("double", "optional", required=False)])
    rng = np.random.default_rng(44)
    frame = pd.DataFrame(
        {
            "boolean": rng.random(ROWS) < 0.5,
            "integer": rng.integers(-(2**31), 2**31, ROWS).astype(np.int32),
            "long": rng.integers(-(2**63), 2**63, ROWS, dtype=np.int64),
            "float": rng.normal(size=ROWS).astype(np.float32),
            "double": rng.normal(size=ROWS) * 10.0 ** rng.integers(-30, 30, ROWS),
            "string": np.array(words(45, ROWS), dtype=object),
            "binary": [rng.bytes(size) for size in rng.integers(0, 9, ROWS)],
            "datetime": np.datetime64("2020-01-01T00:00:00", "ns") + rng.integers(0, 10**8, ROWS) * 10**9,
            "optional": np.where(rng.random(ROWS) < 0.5, np.nan, rng.normal(size=ROWS)),
        }
    )
    case = table_case(save_code(folder, "typed_model.py", signature=ModelSignature(schema)), frame)
    return _with_json_cells(case)


def _with_json_cells(case: Case) -> Case:
    import msgspec

    def cell(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return value.isoformat() if hasattr(value, "isoformat") else value

    return msgspec.structs.replace(case, rows=[[cell(value) for value in row] for row in case.rows])


MODELS: dict[str, Callable[[Path], Case]] = {
    "python-artifacts": artifacts_and_code_paths,
    "python-params": params_given,
    "python-type-hints": type_hints,
    "python-column-types": column_types,
}
