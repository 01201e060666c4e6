"""A Llama-family decoder in float32: flat batch in, logits of the sampled rows out.

`core.Engine` calls `forward` once per step. The order of operations is that of the reference implementation in
transformers, norm weights included, since greedy output has to equal it; weights are fused where that changes
nothing (query-key-value, gate-up).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from steelyard.engine.attention import attend
from steelyard.engine.batch import Batch
from steelyard.engine.cache import KVCache, LayerCache
from steelyard.engine.config import ModelConfig, RopeConfig
from steelyard.engine.weights import WeightLoader

Rotation = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, [tokens, 1, head_dim]


@dataclass(frozen=True, slots=True)
class Layer:
    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


class LlamaModel:
    def __init__(self, config: ModelConfig, weights: WeightLoader, max_model_len: int) -> None:
        """Takes every weight there is. Raises ModelLoadError for one that is missing, left over or misshapen."""
        self.config = config
        hidden = config.hidden_size
        self._embedding = weights.take("embed_tokens.weight", config.vocab_size, hidden)
        self._layers = [_load_layer(config, weights, f"layers.{index}.") for index in range(config.num_layers)]
        self._norm = weights.take("norm.weight", hidden)
        if config.tied_embeddings:
            self._head = self._embedding
            weights.ignore("lm_head.weight")
        else:
            self._head = weights.take("lm_head.weight", config.vocab_size, hidden)
        frequencies = rotary_frequencies(config.rope, config.head_dim)
        if weights.has("rope_freqs"):  # scaling factors that a GGUF file carries as a tensor
            frequencies = frequencies / weights.take("rope_freqs", config.head_dim // 2)
        self._cos, self._sin = _rotary_table(frequencies, max_model_len)
        weights.finish()

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Logits `[samples, vocab]`; writes keys and values of all tokens into the cache."""
        with torch.inference_mode():
            states = F.embedding(batch.token_ids, self._embedding)
            rotation = self._cos[batch.positions][:, None], self._sin[batch.positions][:, None]
            for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
                normed = self._rms(states, layer.input_norm)
                states = states + self._attention(layer, normed, rotation, layer_cache, batch)
                states = states + self._mlp(layer, self._rms(states, layer.mlp_norm))
            return F.linear(self._rms(states[batch.sample_rows], self._norm), self._head)

    def _attention(
        self, layer: Layer, states: torch.Tensor, rotation: Rotation, cache: LayerCache, batch: Batch
    ) -> torch.Tensor:
        heads, kv_heads, head_dim = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        qkv = F.linear(states, layer.qkv, layer.qkv_bias).view(len(states), heads + 2 * kv_heads, head_dim)
        turning, values = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = turning[:, :heads], turning[:, heads:]
            turning = torch.cat([self._rms(queries, layer.query_norm), self._rms(keys, layer.key_norm)], dim=1)
        cos, sin = rotation
        turned = turning * cos + _rotate_half(turning) * sin
        queries, keys = turned[:, :heads], turned[:, heads:]
        cache.store(batch.slot_mapping, keys, values)
        attended = attend(queries, keys, values, cache, batch)
        return F.linear(attended.reshape(len(states), -1), layer.output, layer.output_bias)

    def _mlp(self, layer: Layer, states: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(states, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def _rms(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        variance = states.pow(2).mean(-1, keepdim=True)
        return weight * (states * torch.rsqrt(variance + self.config.rms_eps))


def _load_layer(config: ModelConfig, weights: WeightLoader, prefix: str) -> Layer:
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    query_size, kv_size = config.num_heads * head_dim, config.num_kv_heads * head_dim

    def weight(name: str, *shape: int) -> torch.Tensor:
        return weights.take(f"{prefix}{name}.weight", *shape)

    def fused(kind: str, *parts: tuple[str, int], columns: tuple[int, ...] = ()) -> torch.Tensor:
        return torch.cat([weights.take(f"{prefix}{name}.{kind}", rows, *columns) for name, rows in parts])

    def when(wanted: bool, load: Callable[[], torch.Tensor]) -> torch.Tensor | None:
        return load() if wanted else None

    qkv = (("self_attn.q_proj", query_size), ("self_attn.k_proj", kv_size), ("self_attn.v_proj", kv_size))
    gate_up = (("mlp.gate_proj", inner), ("mlp.up_proj", inner))
    return Layer(
        input_norm=weight("input_layernorm", hidden),
        qkv=fused("weight", *qkv, columns=(hidden,)),
        qkv_bias=when(config.qkv_bias, lambda: fused("bias", *qkv)),
        query_norm=when(config.qk_norm, lambda: weight("self_attn.q_norm", head_dim)),
        key_norm=when(config.qk_norm, lambda: weight("self_attn.k_norm", head_dim)),
        output=weight("self_attn.o_proj", hidden, query_size),
        output_bias=when(config.output_bias, lambda: fused("bias", ("self_attn.o_proj", hidden))),
        mlp_norm=weight("post_attention_layernorm", hidden),
        gate_up=fused("weight", *gate_up, columns=(hidden,)),
        gate_up_bias=when(config.mlp_bias, lambda: fused("bias", *gate_up)),
        down=weight("mlp.down_proj", hidden, inner),
        down_bias=when(config.mlp_bias, lambda: fused("bias", ("mlp.down_proj", hidden))),
    )


def rotary_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians per position of each rotated pair, `[head_dim / 2]`."""
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim))
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3_frequencies(frequencies, rope)
    return frequencies


def _llama3_frequencies(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Waves longer than the original context are stretched by `factor`, short ones kept, those between blended."""
    turns = rope.original_context * frequencies / (2 * math.pi)  # within the original context
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def _rotary_table(frequencies: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(length, dtype=torch.float)[:, None] * frequencies
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


def _rotate_half(states: torch.Tensor) -> torch.Tensor:
    first, second = states.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
