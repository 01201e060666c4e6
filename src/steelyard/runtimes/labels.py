"""A classifier's labels: places in its list of classes → the classes themselves, with their dtype.

Written into an artifact's options as plain JSON values by the exporters, used by every native classifier.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Labels:
    """`dtype` is numpy's name ("int64", "<U9", "object", "bool")."""

    def __init__(self, classes: list[Any], dtype: str) -> None:
        self._classes = np.array(classes, dtype=np.dtype(dtype))
        self.take = self._classes.take  # (rows,) places → (rows,) labels

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._classes.dtype

    def __len__(self) -> int:
        return len(self._classes)
