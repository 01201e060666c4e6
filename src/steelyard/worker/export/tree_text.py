"""Trees as a LightGBM model text, whatever library grew them: the form that the `forest` runtime's evaluator reads.

Used by the converters of scikit-learn, XGBoost and CatBoost trees. It writes numbers so that reading them back gives
the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_NUMERIC_NAN = 8  # decision type: missing means NaN
_DEFAULT_LEFT = 2
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Tree:
    """One array entry per node; a leaf has `left` -1. A row goes left where x <= threshold, or x is NaN and
    `missing_left`. `values` (nodes,): what a leaf adds; of a tree of which only the leaf is wanted, zeros."""

    left: Any
    right: Any
    feature: Any
    threshold: Any
    missing_left: Any
    values: Any

    @property
    def leaves(self) -> Any:
        """Nodes that are leaves, in the order in which the evaluator numbers them."""
        return np.flatnonzero(np.asarray(self.left) < 0)


def constant(value: float) -> Tree:
    """A tree of one leaf: what a sum starts from."""
    none = np.array([-1])
    return Tree(none, none, none, np.zeros(1), np.zeros(1, dtype=bool), np.array([value]))


def model_text(trees: Sequence[Tree], features: int, scores: int = 1) -> str:
    """`scores`: how many sums there are; tree t counts for score t % scores."""
    bodies = [_tree(place, tree) for place, tree in enumerate(trees)]
    head = [
        "tree",
        "version=v4",
        f"num_class={scores}",
        f"num_tree_per_iteration={scores}",
        "label_index=0",
        f"max_feature_idx={features - 1}",
        "feature_names=" + " ".join(f"f{place}" for place in range(features)),
        "feature_infos=" + " ".join(["none"] * features),
        "tree_sizes=" + " ".join(str(len(body)) for body in bodies),
        "",
        "",
    ]
    return "\n".join(head) + "".join(bodies) + "end of trees\n\nparameters:\nend of parameters\n"


def _tree(place: int, tree: Tree) -> str:
    left = np.asarray(tree.left)
    inner = left >= 0
    leaves = int((~inner).sum())
    values = _reals(np.asarray(tree.values, dtype=np.float64)[~inner])
    if leaves == 1:
        return f"Tree={place}\nnum_leaves=1\nnum_cat=0\nleaf_value={values}\nshrinkage=1\n\n\n"
    # the evaluator numbers inner nodes from 0 up and leaves from -1 down
    number = np.where(inner, np.cumsum(inner) - 1, -np.cumsum(~inner, dtype=np.int64))
    threshold = np.asarray(tree.threshold, dtype=np.float64)[inner]
    if np.isnan(threshold).any() or (threshold == -np.inf).any():
        raise ValueError("a threshold that no number passes")
    lines = [
        f"Tree={place}",
        f"num_leaves={leaves}",
        "num_cat=0",
        "split_feature=" + _integers(np.asarray(tree.feature)[inner]),
        "split_gain=" + _zeros(leaves - 1),
        "threshold=" + _reals(np.minimum(threshold, _LARGEST)),
        "decision_type=" + _integers(_NUMERIC_NAN + _DEFAULT_LEFT * np.asarray(tree.missing_left, dtype=bool)[inner]),
        "left_child=" + _integers(number[left[inner]]),
        "right_child=" + _integers(number[np.asarray(tree.right)[inner]]),
        "leaf_value=" + values,
        "leaf_weight=" + _zeros(leaves),
        "leaf_count=" + _zeros(leaves),
        "internal_value=" + _zeros(leaves - 1),
        "internal_weight=" + _zeros(leaves - 1),
        "internal_count=" + _zeros(leaves - 1),
        "is_linear=0",
        "shrinkage=1",
    ]
    return "\n".join(lines) + "\n\n\n"


def _integers(array: Any) -> str:
    return " ".join(map(str, array.tolist()))


def _reals(array: Any) -> str:
    return " ".join(map(repr, array.tolist()))


def _zeros(count: int) -> str:
    return " ".join(["0"] * count)


def float_before(thresholds: Any) -> Any:
    """For float32 x: x < t is x <= the float before t."""
    return np.nextafter(np.asarray(thresholds, dtype=np.float32), np.float32(-np.inf))


def leaf_table(trees: Sequence[Tree], values: Sequence[Any]) -> tuple[Any, Any]:
    """All trees' leaf values one below the other, from `values` (nodes, scores) or (nodes,) of each tree; and where
    each tree's begin."""
    rows = [np.asarray(value)[tree.leaves] for tree, value in zip(trees, values, strict=True)]
    first = np.concatenate(([0], np.cumsum([len(row) for row in rows])[:-1]))
    return np.concatenate(rows), first.astype(np.int64)
