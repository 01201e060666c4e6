"""scikit-learn's trees for the `forest` runtime: their nodes as they are, their last step as options.

Bit for bit: leaf values enter in the order and with the operations of scikit-learn's own sum. Raises Refused for what
has no exact form (categorical splits, an estimator as starting point, several targets' probabilities).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export.offer import plain_classes, save_arrays
from steelyard.worker.export.pipeline import Plan
from steelyard.worker.export.source import Refused, Source
from steelyard.worker.export.tree_text import Tree, constant, leaf_table, model_text

_MEANS = ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor")
_SINGLE = ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor")
_BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
_BINNED = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
_MODEL = "model.txt"


def is_forest(estimator: Any) -> bool:
    known = (*_MEANS, *_SINGLE, *_BOOSTED, *_BINNED, "IsolationForest")
    return type(estimator).__name__ in known and type(estimator).__module__.startswith("sklearn.")


def convert(source: Source, plan: Plan, folder: Path) -> tuple[Artifact, list[Tree]]:
    """Raises Refused."""
    kind = type(plan.estimator).__name__
    if kind in _MEANS or kind in _SINGLE:
        trees, options, arrays = _mean(plan.estimator, source.predict)
    elif kind in _BOOSTED:
        trees, options, arrays = _boosted(plan.estimator, source.predict)
    elif kind in _BINNED:
        trees, options, arrays = _binned(plan.estimator, source.predict)
    else:
        trees, options, arrays = _isolation(plan.estimator, source.predict)
    text = model_text(trees, plan.width, options.pop("sums", 1))
    (folder / _MODEL).write_text(text)
    options.update(
        {
            "cast": "float64" if kind in _BINNED else "float32",
            "missing": None,
            "divide": options.get("divide"),
            "nan": takes(plan, np.nan),
            "infinite": takes(plan, np.inf),
            "steps": plan.steps,
            "width": plan.width,
        }
    )
    # a split of NaN from everything else has the threshold infinity, which the text has as the largest double
    options["ceiling"] = any((np.asarray(tree.threshold) == np.inf).any() for tree in trees)
    files = {"model": _MODEL, **save_arrays(folder, {**plan.arrays, **arrays})}
    return Artifact(runtime="forest", features=source.features, files=files, options=options), list(trees)


def takes(plan: Plan, value: float) -> bool:
    """Whether the estimator itself predicts a row of nothing but this value."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan.estimator.predict(np.full((1, plan.width), value))
    except Exception:  # scikit-learn raises ValueError, older ones others
        return False
    return True


def _nodes(tree: Any, values: Any) -> Tree:
    missing = getattr(tree, "missing_go_to_left", None)
    if missing is None:
        missing = np.zeros(tree.node_count, dtype=bool)
    return Tree(tree.children_left, tree.children_right, tree.feature, tree.threshold, missing, values)


Parts = tuple[Sequence[Tree], dict[str, Any], dict[str, Any]]


def _mean(estimator: Any, predict: str) -> Parts:
    """One tree, or the mean of many."""
    members = [getattr(member, "tree_", None) for member in getattr(estimator, "estimators_", [estimator])]
    widths = [int(count) for count in np.atleast_1d(getattr(estimator, "n_classes_", 1))]
    classifies = hasattr(estimator, "classes_")
    values = [_leaf_values(tree, widths, classifies) for tree in members]
    width = values[0].shape[1]
    options: dict[str, Any] = {"divide": float(len(members)) if hasattr(estimator, "estimators_") else None}
    if not classifies:
        if predict != "predict":
            raise Refused(f"A regressor has no {predict}.")
        options.update({"finish": "values", "flat": estimator.n_outputs_ == 1})
    elif predict == "predict":
        several = estimator.n_outputs_ > 1
        pairs = [plain_classes(classes) for classes in (estimator.classes_ if several else [estimator.classes_])]
        options.update({"finish": "labels", "classes": [pair[0] for pair in pairs], "classes_dtype": pairs[0][1]})
    elif predict == "predict_proba" and estimator.n_outputs_ == 1:
        options["finish"] = "probabilities"
    else:
        raise Refused(f"The {predict} of {type(estimator).__name__} has no native form.")
    if width == 1:
        trees = [_nodes(tree, value[:, 0]) for tree, value in zip(members, values, strict=True)]
        return trees, {**options, "sum": "double"}, {}
    trees = [_nodes(tree, np.zeros(len(value))) for tree, value in zip(members, values, strict=True)]
    table, first_leaf = leaf_table(trees, values)
    return trees, {**options, "sum": "vector"}, {"values": table, "first_leaf": first_leaf}


def _leaf_values(tree: Any, widths: list[int], classifies: bool) -> Any:
    """(nodes, sum of widths): each target's values side by side; classes' counts made shares, as predict_proba does."""
    if not classifies:
        return tree.value[:, :, 0]
    targets = []
    for target, width in enumerate(widths):
        shares = tree.value[:, target, :width].copy()
        total = shares.sum(axis=1, keepdims=True)
        if (np.abs(total - 1.0) > 1e-6).any():  # releases before 1.3 keep counts
            total[total == 0.0] = 1.0
            shares /= total
        targets.append(shares)
    return np.concatenate(targets, axis=1)


def _boosted(estimator: Any, predict: str) -> Parts:
    """Starting point, then each round's leaf value times the learning rate."""
    start = _start(estimator)
    rounds = estimator.estimators_
    trees = [constant(float(value)) for value in start]
    for members in rounds:
        trees.extend(_nodes(member.tree_, estimator.learning_rate * member.tree_.value[:, 0, 0]) for member in members)
    options = {"sum": "double", "sums": len(start), **_last_step(estimator, predict, len(start))}
    return trees, options, {}


def _start(estimator: Any) -> Any:
    scores = estimator.estimators_.shape[1]
    if isinstance(estimator.init_, str):
        return np.zeros(scores)
    if type(estimator.init_).__name__ not in ("DummyClassifier", "DummyRegressor"):
        raise Refused("It starts from another estimator.")
    rows = np.zeros((1, estimator.n_features_in_), dtype=np.float32)
    start = np.asarray(estimator._raw_predict_init(rows), dtype=np.float64).ravel()
    if len(start) != scores:
        raise Refused("Its starting point has another form than its rounds.")
    return start


def _binned(estimator: Any, predict: str) -> Parts:
    rounds = estimator._predictors
    start = np.asarray(estimator._baseline_prediction, dtype=np.float64).ravel()
    scores = len(rounds[0])
    trees = [constant(float(value)) for value in np.broadcast_to(start, (scores,))]
    for members in rounds:
        trees.extend(_binned_tree(member.nodes) for member in members)
    return trees, {"sum": "double", "sums": scores, **_last_step(estimator, predict, scores)}, {}


def _binned_tree(nodes: Any) -> Tree:
    inner = nodes["is_leaf"] == 0
    if nodes["is_categorical"][inner].any():
        raise Refused("It splits on categories.")
    left = np.where(inner, nodes["left"].astype(np.int64), -1)
    right = np.where(inner, nodes["right"].astype(np.int64), -1)
    missing = nodes["missing_go_to_left"].astype(bool)
    return Tree(left, right, nodes["feature_idx"].astype(np.int64), nodes["num_threshold"], missing, nodes["value"])


def _last_step(estimator: Any, predict: str, scores: int) -> dict[str, Any]:
    if hasattr(estimator, "classes_"):
        link = "logistic" if scores == 1 else "softmax"
        if predict == "predict_proba":
            return {"finish": "probabilities", "link": link}
        if predict != "predict":
            raise Refused(f"The {predict} of {type(estimator).__name__} has no native form.")
        classes, dtype = plain_classes(estimator.classes_)
        strict = _zero_is_the_first_class()
        return {"finish": "labels", "link": link, "strict": strict, "classes": [classes], "classes_dtype": dtype}
    loss = str(getattr(estimator, "loss", ""))
    return {"finish": "values", "flat": True, "link": "exp" if loss in ("poisson", "gamma") else "none"}


def _zero_is_the_first_class() -> bool:
    """Before 1.4 a score of exactly zero was an argmax between two halves."""
    import sklearn  # noqa: PLC0415

    return tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 4)


def _isolation(estimator: Any, predict: str) -> Parts:
    """Depths of the leaves, added as `score_samples` adds them; the formula around them is the runtime's."""
    from sklearn.ensemble._iforest import _average_path_length  # noqa: PLC0415

    if predict != "predict":
        raise Refused(f"The {predict} of IsolationForest has no native form.")
    trees = []
    for member, chosen in zip(estimator.estimators_, estimator.estimators_features_, strict=True):
        tree = member.tree_
        depth = _path_lengths(tree)
        # left to right as scikit-learn adds them, for a sum of three depends on its order
        values = depth + _average_path_length(tree.n_node_samples) - 1.0
        nodes = _nodes(tree, values)
        feature = np.where(nodes.left < 0, -1, np.asarray(chosen)[np.maximum(nodes.feature, 0)])
        trees.append(Tree(nodes.left, nodes.right, feature, nodes.threshold, nodes.missing_left, values))
    denominator = len(trees) * float(_average_path_length([estimator._max_samples])[0])
    if not denominator:
        raise Refused("It was fitted on a single row.")
    options = {"finish": "isolation", "offset": float(estimator.offset_), "denominator": denominator, "sum": "double"}
    return trees, options, {}


def _path_lengths(tree: Any) -> Any:
    """Nodes from the root to each node, both included."""
    depth = np.ones(tree.node_count)
    for node in range(tree.node_count):  # children come after their parents
        if tree.children_left[node] >= 0:
            depth[tree.children_left[node]] = depth[tree.children_right[node]] = depth[node] + 1.0
    return depth
