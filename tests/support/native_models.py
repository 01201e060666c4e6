"""Models exported by the real exporter and opened natively, with MLflow's own predict beside them to compare with."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from steelyard.protocols.inputs import Inputs, Outputs, Records
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.native import open_native

EXPORT_ALL = """
import sys
from steelyard.worker.export.__main__ import main
for folder in sys.argv[1:]:
    main([folder + "/model", folder + "/out"])
"""


@dataclass
class Exported:
    """`folder` holds `model` (MLflow's) and `out` (the exporter's)."""

    folder: Path

    def runtime(self, name: str):
        return open_native(self.folder / "out" / name)

    def refusal(self, name: str) -> str:
        return (self.folder / "out" / name / "refused.txt").read_text().strip()

    def names(self) -> set[str]:
        return {path.parent.name for path in (self.folder / "out").glob("*/artifact.json")}

    def reference(self, rows: Any) -> Any:
        import mlflow.pyfunc

        return mlflow.pyfunc.load_model(str(self.folder / "model")).predict(rows)


def export_all(
    root: Path, savers: dict[str, Callable[[Path], None]], *, tools: Path | None = None, then: str = ""
) -> dict[str, Exported]:
    """Save each model and export them all in one process, so that its imports are paid once; it ends with `then`."""
    with threadpool_limits(1):  # for models this small, more threads only wait for each other
        for name, save in savers.items():
            (root / name).mkdir()
            save(root / name / "model")
    command = [sys.executable, "-c", EXPORT_ALL + then, *(str(root / name) for name in savers)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "STEELYARD_TOOL_PATH": str(tools or ""),
    }
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (root / "stderr").write_text(done.stderr)
    return {name: Exported(root / name) for name in savers}


def save_sklearn(make: Callable[[], Any], train: Any, target: Any, predict: str = "predict") -> Callable[[Path], None]:
    """What saves the model that `make` gives, fitted, with a signature."""

    def save(folder: Path) -> None:
        import mlflow.sklearn
        from mlflow.models import infer_signature

        model = make().fit(train) if target is None else make().fit(train, target)
        mlflow.sklearn.save_model(
            model,
            folder,
            signature=infer_signature(train),
            pip_requirements=[],
            pyfunc_predict_fn=predict,
            serialization_format="cloudpickle",
        )

    return save


def inputs_of(rows: Any) -> Inputs:
    """What a decoder makes of a frame, a bare array or a dict of arrays."""
    if isinstance(rows, np.ndarray):
        return Inputs((None,), len(rows), None, (rows,), columnar=False)
    if isinstance(rows, dict):
        arrays = tuple(rows.values())
        return Inputs(tuple(rows), len(arrays[0]), None, arrays, columnar=False)
    dtypes = {str(dtype) for dtype in rows.dtypes}
    names = tuple(rows.columns)
    if len(dtypes) == 1 and np.dtype(rows.dtypes.iloc[0]).kind in "biuf":
        return Inputs(names, len(rows), np.ascontiguousarray(rows.to_numpy()))
    parts = []
    for name in names:
        part = rows[name].to_numpy()
        parts.append(part if part.dtype.kind in "biuf" else np.array([_plain(item) for item in part], dtype=object))
    return Inputs(names, len(rows), None, tuple(parts))


def assert_threads_agree(runtime: RowRuntime, rows: Any, threads: int = 8) -> None:
    """Each thread predicts its own single rows, all at once; every answer must be its row's."""
    singles = [inputs_of(rows[place : place + 1]) for place in range(200)]
    expected = [runtime.predict(single) for single in singles]
    start = threading.Barrier(threads)

    def predict(first: int) -> list[tuple[int, Any]]:
        start.wait()
        order = [*range(first, 200, threads), *range(first)]
        return [(place, runtime.predict(singles[place])) for _ in range(5) for place in order]

    with ThreadPoolExecutor(threads) as pool:
        for answers in pool.map(predict, range(threads)):
            for place, answer in answers:
                np.testing.assert_array_equal(answer, expected[place])


def grown_kib(runtime: RowRuntime, rows: Any, calls: int) -> int:
    """How much resident memory `calls` predictions of one row and of a batch cost, after a warm-up, in KiB."""
    one, many = inputs_of(rows[:1]), inputs_of(rows[:100])
    for _ in range(500):
        runtime.predict(one)
        runtime.predict(many)
    before = _resident_kib()
    for call in range(calls):
        runtime.predict(many if call % 50 == 0 else one)
    return _resident_kib() - before


def _resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def _plain(item: Any) -> Any:
    return None if item is None or item != item else str(item)


def assert_same(mine: Outputs, its: Any, *, exact: bool, rtol: float = 1e-9) -> None:
    """Structure, dtype and values; floats to the last bit where `exact`."""
    if isinstance(mine, Records):
        assert list(mine.names) == list(its.columns)
        for array, name in zip(mine.arrays, mine.names, strict=True):
            assert_same(array, its[name].to_numpy(), exact=exact, rtol=rtol)
        return
    if isinstance(mine, dict):
        assert list(mine) == list(its)
        for name, array in mine.items():
            assert_same(array, its[name], exact=exact, rtol=rtol)
        return
    its = np.asarray(its)
    assert mine.shape == its.shape
    if its.dtype.kind in "UO":
        assert mine.tolist() == its.tolist()
        return
    assert mine.dtype == its.dtype
    if exact or its.dtype.kind in "biu":
        np.testing.assert_array_equal(mine, its)
    else:
        np.testing.assert_allclose(mine, its, rtol=rtol, atol=1e-6 if its.dtype == np.float32 else 1e-12)
