"""A LightGBM model text as arrays: what `walk.c` walks, and what the text says about the sums.

Called by `walker.py` when a model is opened. It reads what decides a prediction and passes over the rest; trees whose
leaves are linear models, and objectives that it does not know, are for LightGBM itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import ModelLoadError

Integers = NDArray[np.int32]
_END = "\nend of trees"
_PLAIN_NUMBER = re.compile(r"(\d{1,9})(?:\.(\d{1,15}))?")


class NotUnderstood(Exception):
    """A text that is for LightGBM's own library; says why."""


@dataclass(frozen=True, slots=True)
class ModelText:
    """All trees' arrays one after the other; `leaves` (trees,) says how many each has, inner nodes are one fewer.

    `objective` is the text's own line, empty for none. Tree t counts for score t % scores. `boundaries` and `words` are
    the sets of categories, which the threshold of a split by categories numbers across all trees.
    """

    features: int
    scores: int
    averages: bool
    objective: str
    leaves: Integers
    feature: Integers
    threshold: NDArray[np.float64]
    decision: NDArray[np.uint8]
    left: Integers
    right: Integers
    leaf_value: NDArray[np.float64]
    boundaries: Integers
    words: NDArray[np.uint32]

    @property
    def first_leaf(self) -> NDArray[np.int64]:
        """Where each tree's leaves begin in an array of all leaves."""
        return np.cumsum(self.leaves, dtype=np.int64) - self.leaves


def read_model_text(file: Path) -> ModelText:
    """Raises ModelLoadError for a text that is damaged, NotUnderstood for one that only LightGBM can evaluate."""
    try:
        return _parsed(file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n"))
    except (OSError, LookupError, ValueError, OverflowError):
        raise ModelLoadError("The text of the model's trees is damaged.") from None


def _parsed(text: str) -> ModelText:
    body, end, _ = text.partition(_END)
    head, *blocks = body.split("\nTree=")
    about = _fields(head)
    if not end or not head.startswith("tree\n"):
        raise ValueError("no trees, or no end of them")
    scores, features = int(about["num_tree_per_iteration"]), int(about["max_feature_idx"]) + 1
    if int(about["num_class"]) != scores or scores < 1 or len(blocks) % scores:
        raise ValueError("scores without trees")
    if len(list(filter(None, about["feature_names"].split(" ")))) != features:
        raise ValueError("features missing")
    if "tree_sizes" in about and len(about["tree_sizes"].split()) != len(blocks):
        raise ValueError("trees missing")
    trees = _Trees()
    for block in blocks:
        trees.add(_fields(block))
    return ModelText(
        features=features,
        scores=scores,
        averages="average_output" in about,
        objective=about.get("objective", ""),
        leaves=np.array(trees.leaves, dtype=np.int32),
        feature=_narrow(trees.feature, np.int32),
        threshold=_joined(trees.threshold, np.float64),
        decision=_narrow(trees.decision, np.uint8),
        left=_narrow(trees.left, np.int32),
        right=_narrow(trees.right, np.int32),
        leaf_value=_joined(trees.leaf_value, np.float64),
        boundaries=np.array(trees.boundaries, dtype=np.int32),
        words=_narrow(trees.words, np.uint32),
    )


def _fields(lines: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition("=") for line in lines.split("\n"))}


class _Trees:
    """Tree after tree, as lists of arrays."""

    def __init__(self) -> None:
        self.leaves: list[int] = []
        self.feature: list[Any] = []
        self.threshold: list[Any] = []
        self.decision: list[Any] = []
        self.left: list[Any] = []
        self.right: list[Any] = []
        self.leaf_value: list[Any] = []
        self.boundaries: list[int] = [0]
        self.words: list[Any] = []

    def add(self, fields: dict[str, str]) -> None:
        leaves = int(fields["num_leaves"])
        if leaves < 1:
            raise ValueError("a tree without leaves")
        if int(fields.get("is_linear") or 0):
            raise NotUnderstood("its leaves are linear models")
        self.leaf_value.append(_numbers(float, fields["leaf_value"], leaves))
        self.leaves.append(leaves)
        if leaves == 1:
            return
        decision = _numbers(int, fields["decision_type"], leaves - 1)
        threshold = _numbers(float, fields["threshold"], leaves - 1)
        sets = int(fields["num_cat"])
        if sets:
            threshold = self._numbered(fields, sets, decision, threshold)
        elif (decision & 1).any():
            raise ValueError("a set of categories that is missing")
        self.decision.append(decision)
        self.threshold.append(threshold)
        self.feature.append(_numbers(int, fields["split_feature"], leaves - 1))
        self.left.append(_numbers(int, fields["left_child"], leaves - 1))
        self.right.append(_numbers(int, fields["right_child"], leaves - 1))

    def _numbered(self, fields: dict[str, str], sets: int, decision: Any, threshold: Any) -> Any:
        """Thresholds that number this tree's sets of categories behind those of the trees before."""
        bounds = _numbers(int, fields["cat_boundaries"], sets + 1)
        self.words.append(_numbers(int, fields["cat_threshold"], int(bounds[-1])))
        by_category = (decision & 1) > 0
        chosen = threshold[by_category]
        if bounds[0] or (np.diff(bounds) < 0).any() or not ((chosen >= 0) & (chosen < sets)).all():
            raise ValueError("a set of categories that is missing")
        before, words_before = len(self.boundaries) - 1, self.boundaries[-1]
        self.boundaries.extend((bounds[1:] + words_before).tolist())
        return np.where(by_category, np.floor(threshold) + before, threshold)


def _numbers(kind: Callable[[str], float], line: str, count: int) -> NDArray[Any]:
    """Exactly `count` numbers. Raises ValueError or OverflowError."""
    words = line.split()
    if len(words) != count or "_" in line:  # Python reads 1_000 as a number
        raise ValueError("another count of numbers")
    return np.array(list(map(kind, words)), dtype=np.float64 if kind is float else np.int64)


def _joined(parts: Iterable[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])


def _narrow(parts: Iterable[Any], dtype: Any) -> NDArray[Any]:
    numbers = _joined(parts, np.int64)
    limits = np.iinfo(dtype)
    if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
        raise ValueError("a number out of range")
    return numbers.astype(dtype)


def option(objective: list[str], name: str) -> float:
    """`name:0.5` among an objective's words. LightGBM reads it with two roundings, one per side of the point."""
    for word in objective:
        key, _, value = word.partition(":")
        if key == name and (parts := _PLAIN_NUMBER.fullmatch(value)):
            whole, fraction = parts[1], parts[2] or ""
            return float(whole) + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
    raise NotUnderstood(f"its objective has no plain {name}")
