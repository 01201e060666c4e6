"""A request of a trace, and what became of it.

Loaders make them, the simulation answers them, the scorecard reads them. They hold counts and block hashes, never text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class SimRequest:
    """What a client sends, `arrival_s` after the trace's start, whatever became of what it sent before."""

    __slots__ = (
        "arrival_s",
        "blocks",
        "end_blocks",
        "input_tokens",
        "key",
        "output_tokens",
        "tenant",
    )

    def __init__(
        self,
        arrival_s: float,
        input_tokens: int,
        output_tokens: int,
        *,
        blocks: tuple[int, ...] = (),
        end_blocks: tuple[int, ...] = (),
        key: int | None = None,
        tenant: int = 0,
    ) -> None:
        self.arrival_s = arrival_s
        self.input_tokens = max(1, input_tokens)
        self.output_tokens = max(1, output_tokens)
        self.blocks = blocks  # chained hashes of the prompt's whole blocks, the head first
        self.end_blocks = end_blocks  # those after them, which prompt and answer together fill
        self.key = key  # of the conversation, where the client gives one
        self.tenant = tenant


@dataclass(slots=True)
class Trace:
    """Requests in the order of their arrival. Traces are cyclic: after `duration_s` comes the beginning again."""

    name: str
    requests: list[SimRequest]
    block_tokens: int
    duration_s: float
    origin: str = ""  # whom to attribute it to; "" for a synthetic one
    slow_share: float = 0.0  # of the replicas, at half speed: part of the scenario
    deaths: int = 0  # how many replicas die half way through

    @property
    def has_prefixes(self) -> bool:
        return any(request.blocks for request in self.requests)


class Outcome(StrEnum):
    """How a request ended; each does exactly once."""

    FINISHED = "finished"
    REFUSED = "refused"  # no replica can hold it
    BROKEN = "broken"  # its replica died after the first token


@dataclass(slots=True)
class Answer:
    """What became of a request. Times are on the virtual clock; NaN: it never came to that."""

    number: int  # in the order of arrival
    request: SimRequest
    arrived_s: float
    outcome: Outcome
    first_token_s: float
    end_s: float
    cached_tokens: int
    replica: int
    attempts: int

    @property
    def ttft_s(self) -> float:
        return self.first_token_s - self.arrived_s

    @property
    def itl_s(self) -> float:
        """Mean time between its tokens; 0 where there is only one."""
        further = self.request.output_tokens - 1
        return (self.end_s - self.first_token_s) / further if further else 0.0


def mixed(*parts: int) -> int:
    """A 63-bit hash of whole numbers, the same in every process (splitmix64, folded)."""
    state = 0
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def chain(head: Sequence[int], salt: int, count: int) -> tuple[int, ...]:
    """`head` and `count` further blocks after it, each hash depending on the one before."""
    blocks = list(head)
    last = blocks[-1] if blocks else 0
    for position in range(count):
        last = mixed(last, salt, position)
        blocks.append(last)
    return tuple(blocks)
