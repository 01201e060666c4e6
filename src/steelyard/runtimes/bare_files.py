"""A model that is a file (ONNX, LightGBM, XGBoost, CatBoost, TorchScript) or a sentence-transformers folder, without
MLflow: made into an MLflow package once, and kept beside the verdicts.

Called by `select.py`. The library that reads the file runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from steelyard.errors import ModelLoadError
from steelyard.packages import Kind, Location, Package, inspect_package
from steelyard.runtimes.verdicts import Verdicts, fingerprint
from steelyard.runtimes.worker_process import Launch, environment_of

BARE = (
    Kind.ONNX, Kind.LIGHTGBM, Kind.XGBOOST, Kind.CATBOOST, Kind.TORCHSCRIPT, Kind.SENTENCE_TRANSFORMERS,
)  # fmt: skip
_LIMIT_S = 240.0
_RECIPE = "bare file, recipe 1"  # counts up when packaging changes what it writes


def packaged(package: Package, verdicts: Verdicts, marks: list[str]) -> Package:
    """The package that stands for a bare file. Raises ModelLoadError."""
    key = fingerprint(package.path, [_RECIPE, package.kind.value, *marks])
    with verdicts.exclusive(key):
        folder = verdicts.find(key)
        if folder is None:
            with verdicts.draft() as draft:
                _make(package, draft / "model")
                folder = verdicts.keep(draft, key)
    return inspect_package(Location(folder / "model", Kind.MLFLOW))


def _make(package: Package, out: Path) -> None:
    launch = Launch(Path(sys.executable), (), {}, package.path)
    command = [sys.executable, "-m", "steelyard.worker.packaging", package.kind.value, str(package.path), str(out)]
    with tempfile.TemporaryDirectory(prefix="steelyard-package-") as scratch:
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=environment_of(launch, Path(scratch), 1),
                timeout=_LIMIT_S,
                check=False,
                text=True,
            )
        except subprocess.TimeoutExpired:
            raise ModelLoadError(f"'{package.path.name}' could not be read within {_LIMIT_S:.0f} s.") from None
    if process.returncode or not (out / "MLmodel").is_file():
        said = process.stdout.strip().splitlines()[-1:]
        raise ModelLoadError(said[0] if said else f"'{package.path.name}' cannot be read; see the log.")
