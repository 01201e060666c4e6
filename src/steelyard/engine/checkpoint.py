"""A model on disk as one value, whatever its format.

The replica opens it for the tokenizer and the template, the engine process for the weights; tensors are read only
when asked for. `formats.open_checkpoint` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from steelyard.engine.config import ModelConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FloatArray = npt.NDArray[np.float32]


class TensorSource(Protocol):
    """Weights by canonical name: the Hugging Face name without its `model.` prefix."""

    @property
    def names(self) -> frozenset[str]: ...

    def read(self, name: str) -> FloatArray:
        """One tensor in float32, half-split rotary layout. Raises ModelLoadError."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    config: ModelConfig
    tensors: TensorSource
    tokenizer: Tokenizer
    chat_template: str | None
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, str]  # bos_token, eos_token, …: what templates call by name
