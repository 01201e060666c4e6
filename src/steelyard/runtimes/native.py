"""Opens what an exporter left: one artifact folder → one runtime in this process.

Called by `select.py` for each candidate, and by later replicas for the one that was chosen. It executes nothing from
the folder and unpickles nothing; libraries are loaded from the paths that the artifact names.
"""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.contracts.artifacts import ARTIFACT_FILE, Artifact
from steelyard.errors import ModelLoadError
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.columns import Columns
from steelyard.runtimes.steps import Steps


def open_native(folder: Path) -> RowRuntime:
    """Raises ModelLoadError when the artifact, its files or its library cannot be used."""
    try:
        artifact = msgspec.json.decode((folder / ARTIFACT_FILE).read_bytes(), type=Artifact)
        arrays = _arrays(folder, artifact)
        return _runtime(folder, artifact, arrays)
    except ImportError as error:
        raise ModelLoadError(f"The {artifact.runtime} runtime needs {error.name}, which is not installed.") from error
    except ModelLoadError:
        raise
    except Exception as error:  # whatever readers of damaged files raise
        raise ModelLoadError(f"The converted model in '{folder.name}' cannot be read.") from error


def _runtime(folder: Path, artifact: Artifact, arrays: dict[str, NDArray[Any]]) -> RowRuntime:
    options = artifact.options
    columns = Columns(artifact.features, options.get("width"))
    steps = Steps(columns, options["steps"], arrays) if options.get("steps") else None
    if artifact.runtime == "linear":
        from steelyard.runtimes.linear import LinearRuntime  # noqa: PLC0415  (only the chosen runtime is imported)

        return LinearRuntime(columns, steps, options, arrays)
    model = folder / artifact.files["model"]
    if artifact.runtime == "lightgbm":
        from steelyard.runtimes.evaluator import boosted_trees  # noqa: PLC0415
        from steelyard.runtimes.lightgbm import LightGbmRuntime  # noqa: PLC0415

        trees = boosted_trees(artifact.library or "", model, raw=options.get("raw", False))
        return LightGbmRuntime(columns, steps, options, trees)
    if artifact.runtime == "forest":
        from steelyard.runtimes.forest import ForestRuntime  # noqa: PLC0415
        from steelyard.runtimes.leaf_sums import sums_of  # noqa: PLC0415

        return ForestRuntime(columns, steps, options, sums_of(_platform_lightgbm, model, options, arrays))
    if artifact.runtime == "xgboost":
        from steelyard.runtimes.xgboost import XGBoostRuntime  # noqa: PLC0415
        from steelyard.runtimes.xgboost_library import Booster  # noqa: PLC0415

        missing = float("nan") if options["missing"] is None else options["missing"]
        booster = Booster(artifact.library or "", model, options["iterations"], missing)
        return XGBoostRuntime(columns, steps, options, booster)
    if artifact.runtime == "onnx":
        from steelyard.runtimes.onnx import OnnxRuntime  # noqa: PLC0415

        return OnnxRuntime(columns, options, model)
    raise ModelLoadError(f"There is no runtime '{artifact.runtime}'.")


def _arrays(folder: Path, artifact: Artifact) -> dict[str, NDArray[Any]]:
    if "arrays" not in artifact.files:
        return {}
    with np.load(folder / artifact.files["arrays"], allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _platform_lightgbm() -> str:
    """The evaluator's library, found without importing the package around it."""
    spec = util.find_spec("lightgbm")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for library in (Path(place) / "lib" / "lib_lightgbm.so", Path(place) / "lib_lightgbm.so"):
            if library.exists():
                return str(library)
    raise ModelLoadError("The forest runtime needs lightgbm, which is not installed.")
