"""Which native runtimes may fit a model, tried one after the other.

Called once by `__main__.py`. A graph of a scikit-learn model is made only where nothing plainer fits: it is slower, and
its conversion takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export import catboost, forest, hints, lightgbm, linear, onnx, xgboost
from steelyard.worker.export.offer import attempt, refuse
from steelyard.worker.export.pipeline import Plan, take_apart
from steelyard.worker.export.source import Refused, Source

_RUNTIMES = {
    "sklearn": ("linear", "forest"),
    "lightgbm": ("lightgbm",),
    "xgboost": ("xgboost", "forest"),
    "catboost": ("forest",),
}


def convert_all(source: Source, out: Path) -> None:
    """Leaves one folder per candidate in `out`, and hints."""
    if source.family == "onnx":
        attempt(out, "onnx", lambda folder: onnx.own_graph(source, folder))
        return
    try:
        plan = take_apart(source)
    except Refused as error:
        for name in _RUNTIMES[source.family]:
            refuse(out, name, str(error))
    else:
        if _plain(source, plan, out):
            return
    if source.family == "sklearn":
        attempt(out, "onnx", lambda folder: onnx.converted(source, folder))


def _plain(source: Source, plan: Plan, out: Path) -> bool:
    """Whether the last estimator has a runtime of its own."""
    estimator = plan.estimator
    if lightgbm.is_lightgbm(estimator):
        done = attempt(out, "lightgbm", _hinted(lightgbm.convert, lightgbm.thresholds, source, plan, out))
    elif xgboost.is_xgboost(estimator):
        by_library = attempt(out, "xgboost", lambda folder: xgboost.convert(source, plan, folder))
        done = attempt(out, "forest", _hinted(xgboost.convert_trees, hints.of_trees, source, plan, out)) or by_library
    elif catboost.is_catboost(estimator):
        done = attempt(out, "forest", _hinted(catboost.convert, hints.of_trees, source, plan, out))
    elif forest.is_forest(estimator):
        done = attempt(out, "forest", _hinted(forest.convert, hints.of_trees, source, plan, out))
    elif linear.is_linear(estimator):
        done = attempt(out, "linear", lambda folder: linear.convert(source, plan, folder))
        if done:
            hints.write(out, source, plan, {})
    else:
        name = type(estimator).__name__
        refuse(out, "linear", f"{name} is not linear.")
        refuse(out, "forest", f"{name} is not made of trees that have a native form.")
        done = False
    return done


def _hinted(
    convert: Callable[[Source, Plan, Path], tuple[Artifact, Any]],
    thresholds: Callable[[Any], dict[int, list[float]]],
    source: Source,
    plan: Plan,
    out: Path,
) -> Callable[[Path], Artifact]:
    """The converter, with what it knows of split points written beside its artifact."""

    def run(folder: Path) -> Artifact:
        artifact, grown = convert(source, plan, folder)
        hints.write(out, source, plan, thresholds(grown))
        return artifact

    return run
