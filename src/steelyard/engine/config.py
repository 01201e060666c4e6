"""What a model is, apart from its weights: read from a checkpoint, used to build the model and to size its cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding. The last four fields are those of the `llama3` kind (`factor` also of `linear`)."""

    theta: float
    kind: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama family: grouped-query attention, RMSNorm, SwiGLU, rotary positions."""

    architecture: str  # as the checkpoint names it
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_eps: float
    rope: RopeConfig
    context_length: int  # tokens; already cut to a sliding window, inside which sliding and full attention agree
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output projection
    mlp_bias: bool = False
    qk_norm: bool = False

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, float32."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * 4
