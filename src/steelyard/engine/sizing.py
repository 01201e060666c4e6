"""How long a sequence may be and how many KV blocks there are, from the model and the memory at hand.

`__main__.py` calls it after the weights are loaded. Pure: memory figures are arguments.
"""

from __future__ import annotations

from steelyard.engine.config import ModelConfig
from steelyard.engine.messages import EngineOptions, Limits
from steelyard.errors import ModelLoadError

_MEMORY_SHARE = 0.25  # of the limit: several replicas and their weights share a machine
_AVAILABLE_SHARE = 0.5  # of what is free now
_SHORTEST_CONTEXT = 128  # tokens; with less, a model is of no use


def engine_limits(
    config: ModelConfig, options: EngineOptions, *, memory_limit_bytes: int, available_bytes: int
) -> Limits:
    """Enough cache for `max_sequences` full sequences, but never more than a share of the memory; the context shrinks
    if not even one fits. Raises ModelLoadError when what fits is useless."""
    block_size = options.block_size
    block_bytes = config.kv_bytes_per_token * block_size
    budget_bytes = options.kv_bytes
    if budget_bytes is None:
        budget_bytes = int(min(_MEMORY_SHARE * memory_limit_bytes, _AVAILABLE_SHARE * available_bytes))
    wanted_len = min(config.context_length, options.max_model_len or config.context_length)
    blocks_per_sequence = -(-wanted_len // block_size)
    usable = min(budget_bytes // block_bytes - 1, blocks_per_sequence * options.max_sequences)
    max_model_len = min(wanted_len, usable * block_size)
    if max_model_len < min(_SHORTEST_CONTEXT, wanted_len):
        raise ModelLoadError(
            f"Too little memory for the KV cache: {budget_bytes >> 20} MiB hold {max(max_model_len, 0)} tokens; "
            f"at least {min(_SHORTEST_CONTEXT, wanted_len)} are needed."
        )
    return Limits(
        max_model_len=max_model_len,
        block_size=block_size,
        num_blocks=usable + 1,  # and the null block
        max_sequences=options.max_sequences,
        vocab_size=config.vocab_size,
    )
