"""A model text opened for the walk in C, with the sums that LightGBM, scikit-learn, CatBoost or XGBoost make.

Called by `evaluator.py` and `leaf_sums.py`, which take LightGBM's library where this is refused. It knows nothing of
labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import ModelFailed, ModelLoadError
from steelyard.runtimes.tree_walk.model_text import ModelText, NotUnderstood, option, read_model_text

try:
    from steelyard.runtimes.tree_walk._walk import Trees
except ImportError:  # there was no C compiler
    Trees = None  # type: ignore[assignment,misc]

_NONE, _SIGMOID, _SOFTMAX, _EXP, _LOG1P_EXP, _SIGNED_SQUARE = range(6)  # as in walk.c
_LINKS = {
    **dict.fromkeys(("", "custom", "huber", "lambdarank", "rank_xendcg"), _NONE),
    **dict.fromkeys(("regression", "regression_l1", "quantile", "fair", "mape"), _NONE),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), _EXP),
    **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), _SIGMOID),
    "multiclass": _SOFTMAX,
    "cross_entropy_lambda": _LOG1P_EXP,
}
_SQUARED = ("regression", "regression_l1", "quantile", "fair", "mape")  # where they say "sqrt"
_NEARLY_ZERO = float(np.float32(1e-35))  # LightGBM leaves out of a row what is no more than this

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)


class Walker:
    """Immutable and thread-safe. `features` and `outputs` are the widths of rows and of sums."""

    def __init__(self, trees: Trees, features: int, outputs: int, dtype: np.dtype[Any]) -> None:
        self.features, self.outputs = features, outputs
        self._walk: Callable[[Any, Any], None] | None = trees.walk
        self._dtype = dtype

    def predict(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """(rows, features) of any real dtype → (rows, outputs). Raises ModelFailed."""
        walk = self._walk
        if walk is None or matrix.shape[1] != self.features:
            raise ModelFailed("The model is closed." if walk is None else "The model takes another number of columns.")
        result = np.empty((len(matrix), self.outputs), self._dtype)
        try:
            walk(matrix, result)
        except ValueError:  # neither floats nor doubles, not contiguous, or not aligned
            walk(np.array(matrix, dtype=F8, order="C"), result)
        return result

    def close(self) -> None:
        """The memory goes with the last call that uses it. Safe to call twice."""
        self._walk = None


@dataclass(frozen=True, slots=True)
class _Sums:
    """What is added: `values` (leaves,) or (leaves, scores), floats or doubles; tree t's go to sum `score[t]` on."""

    values: NDArray[Any]
    score: NDArray[Any]
    scores: int


def boosted(model: Path, *, raw: bool) -> Walker:
    """LightGBM's own model, its objective applied unless `raw`. Raises ModelLoadError, NotUnderstood."""
    text = _read(model)
    link, parameter = (_NONE, 0.0) if raw else _link(text)
    rounds = len(text.leaves) // text.scores
    divisor = float(rounds) if text.averages and not raw else 1.0
    return _walker(text, _tree_by_tree(text), link=link, parameter=parameter, divisor=divisor, tiny=_NEARLY_ZERO)


def converted(model: Path, kind: str, arrays: dict[str, NDArray[Any]]) -> Walker:
    """Another library's trees: see `leaf_sums.py` for `kind` and its arrays. No number of theirs is nearly zero.

    Raises ModelLoadError, NotUnderstood."""
    text = _read(model)
    if kind == "double":
        return _walker(text, _tree_by_tree(text))
    values, first_leaf = arrays["values"], arrays["first_leaf"]
    if not np.array_equal(first_leaf, text.first_leaf):
        raise ModelLoadError("The values of the model's leaves do not fit its trees.")
    if kind == "vector":
        sums = _Sums(values.astype(F8, copy=False), np.zeros(len(text.leaves)), values.shape[1])
    else:
        sums = _Sums(values.astype(F4, copy=False), arrays["score"], int(arrays["score"].max()) + 1)
    return _walker(text, sums)


def _read(model: Path) -> ModelText:
    if Trees is None:
        raise NotUnderstood("the extension was not built")
    return read_model_text(model)


def _tree_by_tree(text: ModelText) -> _Sums:
    return _Sums(text.leaf_value, np.arange(len(text.leaves)) % text.scores, text.scores)


def _walker(
    text: ModelText, sums: _Sums, *, link: int = _NONE, parameter: float = 0.0, divisor: float = 1.0, tiny: float = 0.0
) -> Walker:
    try:
        trees = Trees(
            features=text.features,
            scores=sums.scores,
            width=sums.values.shape[1] if sums.values.ndim > 1 else 1,
            single=sums.values.dtype == F4,
            link=link,
            parameter=parameter,
            divisor=divisor,
            tiny=tiny,
            leaves=text.leaves,
            feature=text.feature,
            threshold=text.threshold,
            decision=text.decision,
            left=text.left,
            right=text.right,
            score=np.asarray(sums.score, dtype=np.int32),
            values=np.ascontiguousarray(sums.values),
            boundaries=text.boundaries,
            words=text.words,
        )
    except ValueError as error:
        raise ModelLoadError(f"The model's trees cannot be walked: {error}.") from None
    return Walker(trees, text.features, sums.scores, sums.values.dtype)


def _link(text: ModelText) -> tuple[int, float]:
    """What LightGBM makes of a sum, by the objective's name, and the number that it needs."""
    name, *rest = text.objective.split() or [""]
    if name not in _LINKS:
        raise NotUnderstood(f"its objective {name!r} is not known here")
    if _LINKS[name] != _NONE or name in _SQUARED:
        expected = option(rest, "num_class") if name.startswith("multiclass") else 1
        if expected != text.scores:
            raise ModelLoadError("The model's objective has another number of classes than its trees.")
    if name in _SQUARED and "sqrt" in rest:
        return _SIGNED_SQUARE, 0.0
    return _LINKS[name], option(rest, "sigmoid") if name in ("binary", "multiclassova") else 1.0
