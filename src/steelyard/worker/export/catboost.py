"""CatBoost models of numeric columns for the `forest` runtime: symmetric trees written out node by node.

CatBoost's wheel ships no prediction library that could be called from outside, and its ONNX form answers in single
precision. Raises Refused for categories, text, embeddings and trees that are not symmetric: these stay with the model's
own code.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export.forest import takes
from steelyard.worker.export.offer import plain_classes, save_arrays
from steelyard.worker.export.pipeline import Plan
from steelyard.worker.export.source import Refused, Source
from steelyard.worker.export.tree_text import Tree, constant, leaf_table, model_text

_MODEL = "model.txt"


def is_catboost(estimator: Any) -> bool:
    return type(estimator).__module__.startswith("catboost.")


def convert(source: Source, plan: Plan, folder: Path) -> tuple[Artifact, list[Tree]]:
    """Raises Refused."""
    estimator = plan.estimator
    if estimator.get_cat_feature_indices() or estimator.get_text_feature_indices():
        raise Refused("It takes categories or text, which only CatBoost itself can encode.")
    model = _model(estimator)
    if "oblivious_trees" not in model:
        raise Refused("Its trees are not symmetric.")
    scale, bias = model["scale_and_bias"]
    bias = [float(item) for item in np.atleast_1d(bias)]
    features = {int(item["feature_index"]): item for item in model["features_info"]["float_features"]}
    by_flat = {int(item["feature_index"]): int(item["flat_feature_index"]) for item in features.values()}
    treatments = {by_flat[key]: str(item.get("nan_value_treatment", "AsIs")) for key, item in features.items()}
    scores = len(bias)
    grown = [_tree(tree, by_flat, treatments, float(scale), scores) for tree in model["oblivious_trees"]]
    trees = [tree for tree, _ in grown]
    arrays: dict[str, Any] = {}
    options = _answer(estimator, source.predict, scores)
    if scores == 1:
        trees = [*trees, constant(bias[0])]
        options["sum"] = "double"
    else:
        trees = [*trees, constant(0.0)]
        table, first_leaf = leaf_table(trees, [*(values for _, values in grown), np.array([bias])])
        arrays = {"values": table, "first_leaf": first_leaf}
        options["sum"] = "vector"
    (folder / _MODEL).write_text(model_text(trees, plan.width))
    options.update(
        {
            "cast": "float32",
            "missing": None,
            "divide": None,
            "nan": takes(plan, np.nan),
            "infinite": takes(plan, np.inf),
            "steps": plan.steps,
            "width": plan.width,
        }
    )
    files = {"model": _MODEL, **save_arrays(folder, {**plan.arrays, **arrays})}
    return Artifact(runtime="forest", features=source.features, files=files, options=options), trees


def _model(estimator: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        estimator.save_model(str(path), format="json")
        model: dict[str, Any] = json.loads(path.read_text())
    return model


def _tree(
    tree: dict[str, Any], flat: dict[int, int], treatments: dict[int, str], scale: float, scores: int
) -> tuple[Tree, Any]:
    """A full binary tree, root first: the last split decides the highest bit of the leaf's place."""
    splits = tree["splits"] or []
    depth = len(splits)
    inner = 2**depth - 1
    nodes = 2 * inner + 1
    values = np.asarray(tree["leaf_values"], dtype=np.float64).reshape(-1, scores) * scale
    left, right = np.full(nodes, -1), np.full(nodes, -1)
    feature, threshold = np.full(nodes, -1), np.zeros(nodes)
    missing = np.zeros(nodes, dtype=bool)
    table = np.zeros((nodes, scores))
    for level in range(depth):
        split = splits[depth - 1 - level]
        if split["split_type"] != "FloatFeature":
            raise Refused("It splits on something that is no number.")
        first = 2**level - 1
        level_nodes = np.arange(first, first + 2**level)
        left[level_nodes], right[level_nodes] = 2 * level_nodes + 1, 2 * level_nodes + 2
        feature[level_nodes] = flat[int(split["float_feature_index"])]
        threshold[level_nodes] = np.float64(np.float32(split["border"]))
        missing[level_nodes] = treatments[flat[int(split["float_feature_index"])]] != "AsTrue"
    table[inner:] = values
    return Tree(left, right, feature, threshold, missing, table[:, 0]), table


def _answer(estimator: Any, predict: str, scores: int) -> dict[str, Any]:
    if predict != "predict":
        raise Refused(f"The {predict} of {type(estimator).__name__} has no native form.")
    kind = type(estimator).__name__
    if kind == "CatBoostClassifier":
        classes, dtype = plain_classes(estimator.classes_)
        if scores not in (1, len(classes)):
            raise Refused("It has another number of scores than classes.")
        link = "logistic" if scores == 1 else "softmax"
        options = {"finish": "labels", "link": link, "strict": True, "classes": [classes], "classes_dtype": dtype}
        return {**options, "column": scores > 1}
    loss = str(estimator.get_all_params().get("loss_function", ""))
    if kind == "CatBoostRegressor" and loss.split(":", maxsplit=1)[0] in ("Poisson", "Tweedie"):
        return {"finish": "values", "flat": True, "link": "exp"}
    return {"finish": "values", "flat": scores == 1}
