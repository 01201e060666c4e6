"""XGBoost models: as the file that their own library reads, and as trees for the `forest` runtime.

The library's way is right for every booster but pays for an array header at every call; the trees' way is taken only
if it gives the very margins that the booster gives on rows that this converter tries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export.offer import save_arrays
from steelyard.worker.export.pipeline import Plan
from steelyard.worker.export.source import Refused, Source
from steelyard.worker.export.tree_text import Tree, constant, float_before, leaf_table, model_text

_MODEL = "model.ubj"
_TEXT = "model.txt"
_LINKS = {
    "binary:logistic": "logistic",
    "reg:logistic": "logistic",
    "multi:softprob": "softmax",
    "count:poisson": "exp",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
    "reg:squarederror": "identity",
    "reg:linear": "identity",
    "reg:absoluteerror": "identity",
    "reg:pseudohubererror": "identity",
    "reg:quantileerror": "identity",
    "binary:logitraw": "identity",
    "rank:pairwise": "identity",
    "rank:ndcg": "identity",
    "rank:map": "identity",
}


def is_xgboost(estimator: Any) -> bool:
    return type(estimator).__module__.startswith("xgboost.")


def convert(source: Source, plan: Plan, folder: Path) -> Artifact:
    """For the library. Raises Refused."""
    booster, options = _common(source, plan)
    if (
        getattr(plan.estimator, "booster", None) == "gblinear"
        or _config(booster)["gradient_booster"]["name"] == "gblinear"
    ):
        raise Refused("A linear booster has no prediction in place.")
    booster.save_model(str(folder / _MODEL))
    files = {"model": _MODEL, **save_arrays(folder, plan.arrays)}
    library = _library()
    return Artifact(runtime="xgboost", features=source.features, files=files, library=library, options=options)


def convert_trees(source: Source, plan: Plan, folder: Path) -> tuple[Artifact, list[Tree]]:
    """For the evaluator. Raises Refused."""
    booster, options = _common(source, plan)
    model = json.loads(booster.save_raw("json"))["learner"]
    objective = model["objective"]["name"]
    if objective not in _LINKS:
        raise Refused(f"The objective {objective} has no native form.")
    if model["gradient_booster"]["name"] != "gbtree":
        raise Refused(f"A {model['gradient_booster']['name']} booster is more than a sum of trees.")
    grown = model["gradient_booster"]["model"]
    parts = [_tree(part) for part in grown["trees"]]
    score = np.asarray(grown["tree_info"], dtype=np.int64)
    if end := options["iterations"]:
        kept = _trees_until(end, grown, score)
        parts, score = parts[:kept], score[:kept]
    rows = _rows(plan.width, [tree for tree, _ in parts])
    margins = booster.inplace_predict(rows, predict_type="margin", iteration_range=(0, end), validate_features=False)
    margins = margins.reshape(len(rows), -1)
    base, base_last = _base(model, parts, score, rows, margins)
    bases = [(constant(0.0), np.array([value], dtype=np.float32)) for value in base]
    parts = [*parts, *bases] if base_last else [*bases, *parts]
    places = np.arange(len(base))
    score = np.concatenate([score, places] if base_last else [places, score])
    trees = [tree for tree, _ in parts]
    values, first_leaf = leaf_table(trees, [value for _, value in parts])
    arrays = {"values": values, "first_leaf": first_leaf, "score": score}
    (folder / _TEXT).write_text(model_text(trees, plan.width))
    options = {
        **{key: options[key] for key in ("missing", "infinite", "steps", "width")},
        "finish": "xgboost",
        "link": _LINKS[objective],
        "flat": margins.shape[1] == 1,
        "answer": {"finish": options["finish"], "dtype": options["dtype"]},
        "sum": "float",
        "cast": "float32",
        "nan": True,
        "divide": None,
    }
    files = {"model": _TEXT, **save_arrays(folder, {**plan.arrays, **arrays})}
    return Artifact(runtime="forest", features=source.features, files=files, options=options), trees


def _trees_until(end: int, grown: dict[str, Any], score: Any) -> int:
    """How many trees the first `end` rounds have."""
    if bounds := grown.get("iteration_indptr"):
        return int(bounds[end])
    return end * int(grown["gbtree_model_param"].get("num_parallel_tree") or 1) * (int(score.max()) + 1)


def _common(source: Source, plan: Plan) -> tuple[Any, dict[str, Any]]:
    estimator = plan.estimator
    plain = not hasattr(estimator, "get_booster")
    booster = estimator if plain else estimator.get_booster()
    if booster.num_features() != plan.width:
        raise Refused("It takes another number of columns than its signature names.")
    names = booster.feature_names
    if (
        source.columnar
        and not plan.steps
        and names is not None
        and [str(item) for item in source.features or ()] != names
    ):
        raise Refused("Its signature names the columns in another order than the model.")
    missing = np.nan if plain else estimator.missing
    missing = np.nan if missing is None else float(missing)
    options = {
        "iterations": 0 if plain else int(estimator._get_iteration_range(None)[1]),
        "missing": None if np.isnan(missing) else missing,
        "infinite": _takes_infinity(source, plan),
        "steps": plan.steps,
        "width": plan.width,
        **({"finish": "values", "dtype": "float32"} if plain else _answer(estimator, source.predict)),
    }
    return booster, options


def _takes_infinity(source: Source, plan: Plan) -> bool:
    row = np.full((1, plan.width), np.inf, dtype=np.float32)
    try:
        if hasattr(plan.estimator, "get_booster"):
            plan.estimator.predict(row)
        else:
            import xgboost  # noqa: PLC0415

            xgboost.DMatrix(row)
    except Exception:  # XGBoostError, and ValueError in some releases
        return False
    return True


def _answer(estimator: Any, predict: str) -> dict[str, Any]:
    """What the scikit-learn class makes of the booster's numbers."""
    if not hasattr(estimator, "n_classes_"):
        if predict != "predict":
            raise Refused(f"The {predict} of {type(estimator).__name__} has no native form.")
        return {"finish": "values", "dtype": "float32"}
    rows = np.zeros((2, estimator.n_features_in_), dtype=np.float32)
    margins = np.asarray(estimator.get_booster().inplace_predict(rows, validate_features=False))
    answer = np.asarray(getattr(estimator, predict)(rows))
    dtype = answer.dtype.name
    if predict == "predict_proba":
        return {"finish": "pair" if margins.ndim == 1 else "values", "dtype": dtype}
    if predict != "predict":
        raise Refused(f"The {predict} of {type(estimator).__name__} has no native form.")
    if answer.dtype.kind not in "iuf":
        raise Refused("Its labels are no numbers.")
    if margins.ndim > 1:
        return {"finish": "argmax" if answer.ndim == 1 else "many", "dtype": dtype}
    return {"finish": "integers" if estimator.objective == "multi:softmax" else "half", "dtype": dtype}


def _tree(part: dict[str, Any]) -> tuple[Tree, Any]:
    """Nodes, and their values in single precision."""
    if any(part.get("split_type") or ()):
        raise Refused("It splits on categories.")
    if int(part["tree_param"].get("size_leaf_vector", "1")) > 1:
        raise Refused("Its trees have several values per leaf.")
    left = np.asarray(part["left_children"], dtype=np.int64)
    conditions = np.asarray(part["split_conditions"], dtype=np.float32)
    tree = Tree(
        left,
        np.asarray(part["right_children"], dtype=np.int64),
        np.asarray(part["split_indices"], dtype=np.int64),
        float_before(conditions).astype(np.float64),
        np.asarray(part["default_left"], dtype=bool),
        np.zeros(len(left)),
    )
    return tree, conditions


def _rows(width: int, trees: list[Tree]) -> Any:
    """Rows around the trees' own split points, on both sides of them, and some with missing values."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((64, width)).astype(np.float32)
    for tree in trees[:200]:
        for node in np.flatnonzero(tree.left >= 0)[:4]:
            column = tree.feature[node]
            rows[rng.integers(64), column] = np.nextafter(
                np.float32(tree.threshold[node]), np.float32(rng.choice([-1e9, 1e9]))
            )
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


def _base(
    model: dict[str, Any], parts: list[tuple[Tree, Any]], score: Any, rows: Any, margins: Any
) -> tuple[Any, bool]:
    """What the sums start from, or end with, since releases differ; checked to the last bit."""
    given = np.asarray(json.loads(model["learner_model_param"]["base_score"]), dtype=np.float32)
    scores = margins.shape[1]
    terms = np.stack([value[_walk(tree, rows)] for tree, value in parts], axis=1)
    with np.errstate(all="ignore"):
        margin_of = (given, -np.log(np.float32(1.0) / given - np.float32(1.0)), np.log(given))
    for last in (False, True):
        for candidate in margin_of:
            for steps in (0, 1, -1, 2, -2):  # the library's own logarithm may round another way
                base = np.broadcast_to(_moved(candidate, steps), (scores,)).astype(np.float32)
                if np.array_equal(_sums(terms, score, base, last), margins):
                    return base, last
    raise Refused("Its margins are not the plain sums of its trees.")


def _moved(value: Any, steps: int) -> Any:
    for _ in range(abs(steps)):
        value = np.nextafter(value, np.float32(np.inf if steps > 0 else -np.inf))
    return value


def _sums(terms: Any, score: Any, base: Any, last: bool) -> Any:
    sums = np.empty((len(terms), len(base)), dtype=np.float32)
    for place, start in enumerate(base):
        first = np.full((len(terms), 1), start, dtype=np.float32)
        own = terms[:, score == place]
        both = (own, first) if last else (first, own)
        sums[:, place] = np.add.accumulate(np.concatenate(both, axis=1), axis=1)[:, -1]
    return sums


def _walk(tree: Tree, rows: Any) -> Any:
    """The leaf of each row."""
    node = np.zeros(len(rows), dtype=np.int64)
    while (inner := tree.left[node] >= 0).any():
        x = rows[np.arange(len(rows)), tree.feature[node]].astype(np.float64)
        left = np.where(np.isnan(x), tree.missing_left[node], x <= tree.threshold[node])
        node = np.where(inner, np.where(left, tree.left[node], tree.right[node]), node)
    return node


def _config(booster: Any) -> Any:
    return json.loads(booster.save_config())["learner"]


def _library() -> str:
    from xgboost import core  # noqa: PLC0415

    name = getattr(core._LIB, "_name", "")
    if not Path(name).is_absolute():
        raise Refused("XGBoost does not say where its library is.")
    return str(Path(name).resolve())
