"""Our walk through trees beside LightGBM's library, both inside the native runtimes: one row, and 1,000 rows at once.

Models of 28 columns and 10,000 rows, saved with MLflow and converted as for serving: a LightGBM booster for two classes
(200 trees of 31 leaves), scikit-learn forests of 100 trees without a limit of depth, 200 trees of XGBoost, for which
the other way is XGBoost's own library. One thread. Rows differ from call to call, since a processor that sees the same
row again guesses every branch of a library's walk right. Both ways take turns and a figure is the best of all rounds;
they must give the same answers before anything is timed.

    python benchmarks/trees.py [--rounds 7] [--models booster,forest,regression,xgboost] [--json]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import structlog

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.native import open_native
from steelyard.runtimes.tree_walk import walker
from steelyard.worker.export.__main__ import main as export

COLUMNS, TRAINING_ROWS, ROWS, SINGLES = 28, 10_000, 1000, 500
NAMES = tuple(f"c{place}" for place in range(COLUMNS))


def main() -> None:
    arguments = _arguments()
    if walker.Trees is None:
        raise SystemExit("The extension was not built: install Steelyard where there is a C compiler.")
    figures: dict[str, dict[str, float]] = {}
    print(f"{'µs per call':24}{'walk':>10}{'library':>10}{'ratio':>8}")
    with TemporaryDirectory(prefix="bench-") as folder:
        for name in arguments.models:
            walk, library = _opened(name, Path(folder) / name)
            for size, found in _compared(walk, library, arguments.rounds).items():
                figures[f"{name}, {size}"] = found
                print(
                    f"{f'{name}, {size}':24}{found['walk_us']:10.1f}{found['library_us']:10.1f}{found['ratio']:7.1f}×"
                )
    if arguments.json:
        versions = {package: version(package) for package in ("lightgbm", "scikit-learn", "xgboost", "numpy")}
        print(json.dumps({"figures": figures, "python": platform.python_version(), "versions": versions}))


def _opened(name: str, folder: Path) -> tuple[RowRuntime, RowRuntime]:
    """The native runtime of that model with the walk, and with a library."""
    from mlflow.models import infer_signature

    rows = np.random.default_rng(7).normal(size=(TRAINING_ROWS, COLUMNS))
    score = rows[:, 0] * rows[:, 1] + rows[:, 2] + np.random.default_rng(8).normal(size=TRAINING_ROWS) / 2
    flavor, model = MODELS[name](rows, score)
    settings = {"serialization_format": "cloudpickle"} if flavor.__name__ == "mlflow.sklearn" else {}
    signature = infer_signature(_frame(rows))
    flavor.save_model(model, str(folder / "model"), signature=signature, pip_requirements=[], **settings)
    export([str(folder / "model"), str(folder / "out")])
    out = folder / "out"
    if name == "xgboost":
        return open_native(out / "forest"), open_native(out / "xgboost")
    (kind,) = (path.parent for path in out.glob("*/artifact.json"))
    with patch.object(walker, "Trees", None):
        library = open_native(kind)
    return open_native(kind), library


def _compared(walk: RowRuntime, library: RowRuntime, rounds: int) -> dict[str, dict[str, float]]:
    rows = np.random.default_rng(9).normal(size=(ROWS, COLUMNS))
    batch = [Inputs(NAMES, ROWS, rows)]
    singles = [Inputs(NAMES, 1, rows[place : place + 1].copy()) for place in range(SINGLES)]
    for inputs in (*batch, *singles):
        if not np.array_equal(walk.predict(inputs), library.predict(inputs)):
            raise SystemExit("The two ways do not agree.")
    found = {}
    for name, calls in (("1 row", singles), ("1,000 rows", batch)):
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(_us(walk.predict, calls))
            theirs.append(_us(library.predict, calls))
        found[name] = {"walk_us": min(ours), "library_us": min(theirs), "ratio": min(theirs) / min(ours)}
    return found


def _us(predict: Callable[[Inputs], Any], calls: list[Inputs]) -> float:
    start = time.perf_counter()
    for inputs in calls:
        predict(inputs)
    return (time.perf_counter() - start) * 1e6 / len(calls)


def _booster(rows: Any, score: Any) -> tuple[Any, Any]:
    import lightgbm
    import mlflow.lightgbm

    parameters = {"objective": "binary", "num_leaves": 31, "num_threads": 1, "verbose": -1}
    return mlflow.lightgbm, lightgbm.train(parameters, lightgbm.Dataset(_frame(rows), score > 0), 200)


def _forest(rows: Any, score: Any) -> tuple[Any, Any]:
    import mlflow.sklearn
    from sklearn.ensemble import RandomForestClassifier

    return mlflow.sklearn, RandomForestClassifier(100, random_state=7).fit(_frame(rows), score > 0)


def _regression(rows: Any, score: Any) -> tuple[Any, Any]:
    import mlflow.sklearn
    from sklearn.ensemble import RandomForestRegressor

    return mlflow.sklearn, RandomForestRegressor(100, random_state=7, max_features=0.3).fit(_frame(rows), score)


def _xgboost(rows: Any, score: Any) -> tuple[Any, Any]:
    import mlflow.xgboost
    from xgboost import XGBClassifier

    return mlflow.xgboost, XGBClassifier(n_estimators=200, max_depth=6, n_jobs=1).fit(_frame(rows), score > 0)


def _frame(rows: Any) -> Any:
    import pandas

    return pandas.DataFrame(rows, columns=list(NAMES))


MODELS = {"booster": _booster, "forest": _forest, "regression": _regression, "xgboost": _xgboost}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    main()
