"""Where keys and values live: a pool of fixed-size blocks, and the tensors behind them.

The scheduler owns the `BlockPool` (numbers only); the model reads and writes `KVCache` through slot numbers
(`block * block_size + offset`). Block 0 is nobody's: padding reads it, so it stays zero for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from steelyard.engine.config import ModelConfig

NULL_BLOCK = 0


class BlockPool:
    """Hands out block numbers. The lowest are handed out first, so that untouched memory stays untouched."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 2:
            raise ValueError("a pool needs its null block and at least one more")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))

    @property
    def num_usable(self) -> int:
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_usable - self.num_free

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def can_allocate(self, count: int) -> bool:
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """`count` blocks; ask `can_allocate` first."""
        if not self.can_allocate(count):
            raise RuntimeError(f"{count} blocks wanted, {len(self._free)} free")
        return [self._free.pop() for _ in range(count)]

    def free(self, blocks: list[int]) -> None:
        self._free.extend(reversed(blocks))

    def check_integrity(self, owned: Iterable[int]) -> None:
        """Every block is free or owned, once. Raises RuntimeError; meant for tests and idle moments."""
        blocks = [*self._free, *owned]
        if sorted(blocks) != list(range(1, self.num_blocks)):
            raise RuntimeError(f"{len(blocks)} blocks are accounted for, {self.num_usable} exist")


class LayerCache:
    """One layer's keys and values, `[kv_heads, slots, head_dim]` each: one head's slots lie together, so that gathered
    rows feed a batched matrix product without another copy."""

    def __init__(self, config: ModelConfig, num_slots: int) -> None:
        shape = (config.num_kv_heads, num_slots, config.head_dim)
        # Not zeroed: the system gives pages when they are first written, and a slot is written before it is read.
        self._keys, self._values = torch.empty(shape), torch.empty(shape)

    def store(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """`keys` and `values` are `[tokens, kv_heads, head_dim]`, `slots` says where each token goes."""
        self._keys.index_copy_(1, slots, keys.transpose(0, 1))
        self._values.index_copy_(1, slots, values.transpose(0, 1))

    def gather(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values `[kv_heads, len(slots), head_dim]`."""
        return self._keys.index_select(1, slots), self._values.index_select(1, slots)

    def zero(self, slots: slice) -> None:
        self._keys[:, slots] = 0
        self._values[:, slots] = 0


class KVCache:
    """The tensors behind a pool of `num_blocks` blocks."""

    def __init__(self, config: ModelConfig, num_blocks: int, block_size: int) -> None:
        self.layers = [LayerCache(config, num_blocks * block_size) for _ in range(config.num_layers)]
        self._block_size = block_size
        self.zero([NULL_BLOCK])

    def zero(self, blocks: Sequence[int]) -> None:
        """Wipe blocks: the null block at the start, and those of a sequence whose numbers went bad."""
        for layer in self.layers:
            for block in blocks:
                layer.zero(slice(block * self._block_size, (block + 1) * self._block_size))
