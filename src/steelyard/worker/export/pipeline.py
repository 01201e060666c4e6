"""A scikit-learn pipeline taken apart: numpy steps for what comes before, and the estimator that comes last.

Used by the converters of every family, since a pipeline may end in any of them. It raises Refused for a step that has
no exact numpy form; `runtimes/steps.py` says what the steps mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard.worker.export.encoders import codes_of
from steelyard.worker.export.source import Refused, Source


@dataclass
class Plan:
    """`steps` and `arrays` as in an artifact; `width` of the matrix that `estimator` takes; `origin`: for each of its
    columns the input column that it is, unchanged, or None; `categories` of input columns, for hints."""

    estimator: Any
    width: int
    origin: list[int | None]
    steps: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)
    categories: dict[str, list[Any]] = field(default_factory=dict)

    def keep(self, array: Any) -> str:
        name = f"step{len(self.arrays)}"
        self.arrays[name] = np.asarray(array, dtype=np.float64)
        return name


def unwrap(model: Any) -> Any:
    """The fitted model inside a search over parameters."""
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    return model


def take_apart(source: Source) -> Plan:
    """Raises Refused."""
    steps, estimator = _flatten(unwrap(source.model))
    if source.features is not None and not source.columnar:
        raise Refused("It takes named tensors.")
    if source.features is None:
        width = int(getattr(steps[0] if steps else estimator, "n_features_in_", 0))
        if not width:
            raise Refused("It does not say how many columns it takes.")
    else:
        width = len(source.features)
    plan = Plan(estimator, width, list(range(width)))
    if not steps:
        _ = source.joint_dtype
        return plan
    if type(steps[0]).__name__ == "ColumnTransformer":
        _branches(plan, steps[0], source)
        steps = steps[1:]
    else:
        _ = source.joint_dtype
    for step in steps:
        plan.steps.extend(_numeric(plan, step))
    return plan


def _flatten(model: Any) -> tuple[list[Any], Any]:
    if type(model).__name__ != "Pipeline":
        return [], model
    parts = [part for _, part in model.steps if part is not None and part != "passthrough"]
    inner, last = _flatten(unwrap(parts[-1]))
    return [*(step for part in parts[:-1] for step in _all_steps(part)), *inner], last


def _all_steps(part: Any) -> list[Any]:
    if type(part).__name__ == "Pipeline":
        return [
            step
            for _, inner in part.steps
            if inner is not None and inner != "passthrough"
            for step in _all_steps(inner)
        ]
    return [part]


def _branches(plan: Plan, transformer: Any, source: Source) -> None:
    if source.features is None:
        raise Refused("Its ColumnTransformer takes an unnamed tensor.")
    branches: list[dict[str, Any]] = []
    origin: list[int | None] = []
    for _, fitted, chosen in transformer.transformers_:
        places = _places(chosen, source)
        if (isinstance(fitted, str) and fitted == "drop") or not places:
            continue
        if (weights := transformer.transformer_weights) and weights:
            raise Refused("Its ColumnTransformer has weights.")
        steps = [] if isinstance(fitted, str) else _all_steps(fitted)
        if isinstance(fitted, str) and fitted != "passthrough":
            raise Refused("It has an unknown kind of column.")
        names = [str(source.features[place]) for place in places]
        kinds = [source.dtypes[place] for place in places]
        if steps and type(steps[-1]).__name__ in ("OneHotEncoder", "OrdinalEncoder"):
            codes = codes_of(steps[:-1], steps[-1], kinds)
            branches.append({"columns": places, "codes": codes})
            for name, code in zip(names, codes, strict=True):
                plan.categories[name] = list(code["values"])
            origin.extend([None] * sum(code.get("width", 1) for code in codes))
            continue
        if "object" in kinds:
            raise Refused("It passes text on without encoding it.")
        inner = Plan(None, len(places), list(places), [], plan.arrays)
        for step in steps:
            inner.steps.extend(_numeric(inner, step))
        branches.append({"columns": places, "steps": inner.steps})
        origin.extend(inner.origin)
    plan.steps.append({"kind": "branches", "branches": branches})
    plan.width, plan.origin = len(origin), origin


def _places(chosen: Any, source: Source) -> list[int]:
    features = list(source.features or ())
    if isinstance(chosen, slice):
        if isinstance(chosen.start, str) or isinstance(chosen.stop, str):
            raise Refused("It chooses columns by a range of names.")
        return list(range(len(features)))[chosen]
    if isinstance(chosen, (str, int, np.integer)):
        raise Refused("It takes one column as a vector.")
    chosen = list(chosen)
    if chosen and all(isinstance(item, (bool, np.bool_)) for item in chosen):
        return [place for place, item in enumerate(chosen) if item]
    return [features.index(item) if isinstance(item, str) else int(item) for item in chosen]


def _numeric(plan: Plan, step: Any) -> list[dict[str, Any]]:
    """A transformer of numbers into numbers, column by column; keeps the plan's width and origin right."""
    kind = type(step).__name__
    if kind == "SimpleImputer":
        return _imputer(plan, step)
    if kind == "FunctionTransformer" and step.func is None:  # how newer releases write "passthrough"
        return []
    plan.origin = [None] * plan.width
    finite: dict[str, Any] = {"kind": "finite"}
    if kind == "StandardScaler":
        scaled = [finite]
        if step.with_mean:
            scaled.append({"kind": "subtract", "array": plan.keep(step.mean_)})
        if step.with_std:
            scaled.append({"kind": "divide", "array": plan.keep(step.scale_)})
        return scaled
    if kind == "MinMaxScaler":
        scaled = [finite, {"kind": "multiply", "array": plan.keep(step.scale_)}]
        scaled.append({"kind": "add", "array": plan.keep(step.min_)})
        if getattr(step, "clip", False):
            scaled.append({"kind": "clip", "low": float(step.feature_range[0]), "high": float(step.feature_range[1])})
        return scaled
    if kind == "MaxAbsScaler":
        if getattr(step, "clip", False):
            raise Refused("Its MaxAbsScaler clips.")
        return [finite, {"kind": "divide", "array": plan.keep(step.scale_)}]
    if kind == "RobustScaler":
        scaled = [finite]
        if step.with_centering:
            scaled.append({"kind": "subtract", "array": plan.keep(step.center_)})
        if step.with_scaling:
            scaled.append({"kind": "divide", "array": plan.keep(step.scale_)})
        return scaled
    raise Refused(f"It has a {kind} step, which has no exact numpy form here.")


def _imputer(plan: Plan, step: Any) -> list[dict[str, Any]]:
    if step.add_indicator or not _is_nan(step.missing_values):
        raise Refused("Its SimpleImputer marks what was missing, or takes another value than NaN for it.")
    values = np.asarray(step.statistics_)
    if values.dtype.kind not in "biuf":
        raise Refused("Its SimpleImputer fills in text.")
    gone = np.isnan(values.astype(np.float64))
    keep = [place for place in range(plan.width) if not gone[place]] if gone.any() else None
    if keep is not None:
        plan.origin = [plan.origin[place] for place in keep]
        plan.width, values = len(keep), values[keep]
    return [{"kind": "fill", "array": plan.keep(values), "keep": keep}]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and np.isnan(value)
