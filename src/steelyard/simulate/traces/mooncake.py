"""Mooncake's traces: arrival times, token counts, and a hash of each 512 tokens of prompt, so that reuse can be seen.

Format: one JSON object a line, `timestamp` (ms), `input_length`, `output_length`, `hash_ids`; equal leading ids are the
same prefix. Attribution, wherever the data are used: Qin et al., Mooncake, FAST 2025 (Apache-2.0).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from steelyard.simulate.requests import SimRequest, Trace, mixed

ORIGIN = "Mooncake (Qin et al., FAST 2025)"
BLOCK_TOKENS = 512
COMMON_SHARE = 0.05  # a block that begins so many of the prompts is a system prompt, not a conversation


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def load(path: Path, name: str) -> Trace:
    """Raises ValueError that names the line that is wrong."""
    decoder = msgspec.json.Decoder(_Line)
    lines: list[_Line] = []
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.strip():
                try:
                    lines.append(decoder.decode(raw))
                except msgspec.DecodeError as error:
                    raise ValueError(f"{path.name}, line {number}: {error}") from error
    if not lines:
        raise ValueError(f"{path.name} holds no request.")
    first_ms = min(line.timestamp for line in lines)
    seen = Counter(block for line in lines for block in line.hash_ids)
    requests = [_request(line, first_ms, seen, len(lines)) for line in lines]
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, requests, BLOCK_TOKENS, duration_s=requests[-1].arrival_s + 1.0, origin=ORIGIN)


def _request(line: _Line, first_ms: float, seen: Counter[int], count: int) -> SimRequest:
    whole = line.input_length // BLOCK_TOKENS  # the last id may stand for a block that is not full
    blocks = tuple(mixed(block) for block in line.hash_ids[:whole])
    # What a router makes of a conversation's head: the prompt up to the first block that few others share.
    own = next((block for block in line.hash_ids if seen[block] < COMMON_SHARE * count), None)
    return SimRequest(
        (line.timestamp - first_ms) / 1000,
        line.input_length,
        line.output_length,
        blocks=blocks,
        key=None if own is None else mixed(own, 1),
    )
