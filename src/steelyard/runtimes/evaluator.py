"""What evaluates a model text: the walk in C where it can, else LightGBM's library, with the same answers.

Called by `native.py` and `leaf_sums.py`. The library is loaded only where it is needed, and the log says why it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from steelyard.observe.logs import get_logger
from steelyard.runtimes.tree_walk import walker
from steelyard.runtimes.tree_walk.model_text import NotUnderstood

T = TypeVar("T")


class Evaluator(Protocol):
    """Thread-safe."""

    def predict(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """(rows, features) of any real dtype → (rows, outputs). Raises ModelFailed."""

    def close(self) -> None:
        """Safe to call twice."""


def boosted_trees(library: str, model: Path, *, raw: bool) -> Evaluator:
    """LightGBM's own model, its objective applied unless `raw`. Raises ModelLoadError."""

    def by_library() -> Evaluator:
        from steelyard.runtimes.lightgbm_library import NORMAL, RAW, Trees  # noqa: PLC0415

        return Trees(library, model, RAW if raw else NORMAL)

    return walked_or(lambda: walker.boosted(model, raw=raw), by_library)


def walked_or(walked: Callable[[], T], by_library: Callable[[], T]) -> T:
    """Raises ModelLoadError."""
    try:
        return walked()
    except NotUnderstood as reason:
        get_logger().info("trees_by_library", reason=str(reason))
        return by_library()
