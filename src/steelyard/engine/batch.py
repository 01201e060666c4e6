"""A step plan as tensors: one flat row of tokens from all sequences, and where each finds its past.

`core.Engine` builds it once per step; the model uses it in every layer. Sequences that compute one token are grouped
by similar length and attended to together; prompt chunks are attended to one by one.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from steelyard.engine.scheduler import ScheduledRow

_SHORT = 64  # below this length, padding to the longest is cheaper than another group


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Consecutive tokens of one sequence: `rows` of the flat batch."""

    rows: slice
    slots: torch.Tensor | None  # [context] of the whole sequence so far; None: the chunk is all there is
    mask: torch.Tensor | None  # [count, context], True where a token may look; None: plainly causal


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """One token each of several sequences."""

    rows: torch.Tensor  # [sequences]
    slots: torch.Tensor  # [sequences * longest], padded with slot 0 of the null block
    bias: torch.Tensor | None  # [sequences, 1, longest]: 0, or -inf for padding; None: all are equally long


@dataclass(frozen=True, slots=True)
class Batch:
    token_ids: torch.Tensor  # [tokens]
    positions: torch.Tensor  # [tokens]
    slot_mapping: torch.Tensor  # [tokens]: where each token's key and value go
    chunks: list[PrefillChunk]
    groups: list[DecodeGroup]
    sample_rows: torch.Tensor  # [samples]: rows from which a token follows, in plan order


def build_batch(rows: Seq[ScheduledRow], block_size: int) -> Batch:
    token_ids: list[int] = []
    positions: list[int] = []
    slot_mapping: list[torch.Tensor] = []
    chunks: list[PrefillChunk] = []
    decodes: list[tuple[int, torch.Tensor]] = []
    sample_rows: list[int] = []
    for row in rows:
        first = len(token_ids)
        token_ids += row.sequence.token_ids[row.start : row.end]
        positions += range(row.start, row.end)
        slots = _slots(row.sequence.block_table, row.end, block_size)
        slot_mapping.append(slots[row.start :])
        if row.count == 1:
            decodes.append((first, slots))
        else:
            chunks.append(_chunk(slice(first, first + row.count), row, slots))
        if row.samples:
            sample_rows.append(len(token_ids) - 1)
    return Batch(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        slot_mapping=torch.cat(slot_mapping),
        chunks=chunks,
        groups=[_group(members) for members in _similar_lengths(decodes)],
        sample_rows=torch.tensor(sample_rows, dtype=torch.long),
    )


def _slots(block_table: list[int], length: int, block_size: int) -> torch.Tensor:
    """Slot of each of a sequence's first `length` tokens."""
    blocks = torch.tensor(block_table[: -(-length // block_size)])
    return (blocks[:, None] * block_size + torch.arange(block_size)).flatten()[:length]


def _chunk(rows: slice, row: ScheduledRow, slots: torch.Tensor) -> PrefillChunk:
    if row.start == 0:
        return PrefillChunk(rows, None, None)
    mask = torch.arange(row.end) <= torch.arange(row.start, row.end)[:, None]
    return PrefillChunk(rows, slots, mask)


def _similar_lengths(decodes: list[tuple[int, torch.Tensor]]) -> list[list[tuple[int, torch.Tensor]]]:
    """Groups in which the longest is at most twice the shortest, or short anyway: bounds what padding wastes."""
    groups: list[list[tuple[int, torch.Tensor]]] = []
    for member in sorted(decodes, key=lambda decode: len(decode[1])):
        if groups and len(member[1]) <= max(2 * len(groups[-1][0][1]), _SHORT):
            groups[-1].append(member)
        else:
            groups.append([member])
    return groups


def _group(members: list[tuple[int, torch.Tensor]]) -> DecodeGroup:
    lengths = torch.tensor([len(slots) for _, slots in members])
    longest = int(lengths.max())
    slots = torch.nn.utils.rnn.pad_sequence([slots for _, slots in members], batch_first=True)
    padding = torch.arange(longest) >= lengths[:, None]
    bias = torch.zeros(padding.shape).masked_fill_(padding, -torch.inf)[:, None] if padding.any() else None
    return DecodeGroup(torch.tensor([row for row, _ in members]), slots.flatten(), bias)
