"""The native forms of a model: has the exporter make them, in the model's own environment, and opens what it left.

A worker that loads the model makes them on the way; only where it did not, the exporter runs as a process of its own.
Called by `proven.py` once per model version. Nothing is trusted here: each candidate still has to be proven.
"""

from __future__ import annotations

import json
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.contracts.artifacts import ARTIFACT_FILE, REFUSED_FILE
from steelyard.errors import ModelLoadError
from steelyard.observe.logs import get_logger
from steelyard.protocols.inputs import Name
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.native import open_native
from steelyard.runtimes.proof.layout import Hints
from steelyard.runtimes.worker_process import Launch, environment_of

BESIDE_A_WORKER = frozenset({"mlflow.sklearn", "mlflow.lightgbm", "mlflow.xgboost", "mlflow.catboost"})
APART = frozenset({"mlflow.onnx"})  # its graph is linked to, which the worker's own user may not do
_LIMIT_S = 120.0
_HINTS_FILE = "hints.json"


@dataclass(frozen=True, slots=True)
class Candidate:
    """`runtime` is None when it was refused; `refusal` then says why."""

    name: str
    runtime: RowRuntime | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Candidates:
    """`hints`: values that matter by input name, for the proof."""

    items: Sequence[Candidate]
    hints: Hints


def export(launch: Launch, out: Path) -> Candidates:
    """Runs the exporter, which writes to `out`. What goes wrong is a candidate's refusal or a log line, not raised."""
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-export-") as scratch:
            environment = environment_of(launch, Path(scratch), 1)
            environment["STEELYARD_TOOL_PATH"] = sysconfig.get_paths()["purelib"]
            command = [str(launch.python), "-m", "steelyard.worker.export", str(launch.model), str(out)]
            process = subprocess.run(
                command, stdin=subprocess.DEVNULL, env=environment, timeout=_LIMIT_S, check=False, stdout=2
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        get_logger().warning("export_failed", reason=type(error).__name__)
        return Candidates((), {})
    if process.returncode:
        get_logger().warning("export_failed", reason=f"it ended with status {process.returncode}")
    return opened(out)


def opened(out: Path) -> Candidates:
    """What an exporter left there."""
    folders = sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []
    return Candidates([_open(folder) for folder in folders], _hints(out / _HINTS_FILE))


def _open(folder: Path) -> Candidate:
    refused = folder / REFUSED_FILE
    if refused.is_file() and not (folder / ARTIFACT_FILE).is_file():
        return Candidate(folder.name, None, refused.read_text().strip())
    try:
        return Candidate(folder.name, open_native(folder))
    except ModelLoadError as error:
        return Candidate(folder.name, None, error.message)


def _hints(file: Path) -> Hints:
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    result: dict[Name, list[Any]] = {}
    for kind in ("thresholds", "categories"):
        for name, values in told.get(kind, {}).items():
            result.setdefault(name, []).extend(values)
    return result
