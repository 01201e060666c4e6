"""Hands a checkpoint's tensors to the model once each, and sees that shapes agree and nothing is left over.

A weight that nobody takes means that the model is not the one we think it is: better no answer than a wrong one.
"""

from __future__ import annotations

import torch

from steelyard.engine.checkpoint import TensorSource
from steelyard.errors import ModelLoadError

_DERIVED = ("rotary_emb.inv_freq",)  # buffers that old checkpoints carry and everybody computes


class WeightLoader:
    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self._left = {name for name in source.names if not name.endswith(_DERIVED)}

    def has(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """A float32 tensor of exactly this shape. Raises ModelLoadError."""
        if name not in self._left:
            raise ModelLoadError(f"The checkpoint has no tensor {name!r}.")
        self._left.remove(name)
        array = self._source.read(name)
        if array.shape != shape:
            raise ModelLoadError(f"The tensor {name!r} has the shape {array.shape}; {shape} is expected.")
        return torch.from_numpy(array)

    def ignore(self, name: str) -> None:
        """A tensor that may be there and is not wanted, as a second copy of tied embeddings."""
        self._left.discard(name)

    def finish(self) -> None:
        if self._left:
            some = ", ".join(sorted(self._left)[:3])
            raise ModelLoadError(f"The checkpoint has {len(self._left)} tensors that the model does not use: {some}.")
