"""One request inside the engine: its tokens, how far they are computed, and the KV blocks it owns.

The scheduler is the only one who changes a sequence. There are no phases: a sequence always has tokens whose keys
and values are computed and tokens that are still to be computed, and it yields a new token whenever it has caught up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from steelyard.engine.messages import AddRequest, FinishReason


@dataclass(slots=True, eq=False)
class Sequence:
    request: AddRequest
    seed: int  # drawn once, so that a preempted sequence repeats itself
    arrival: int  # running number; FIFO within a priority
    token_ids: list[int] = field(init=False)
    num_computed: int = 0  # leading tokens whose keys and values are in the cache
    block_table: list[int] = field(default_factory=list)
    stop_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        self.stop_token_ids = frozenset(self.request.stop_token_ids)

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_pending(self) -> int:
        """Tokens still to compute before the next one can be sampled; 1 while decoding."""
        return len(self.token_ids) - self.num_computed

    def append(self, token_id: int) -> FinishReason | None:
        """Add a sampled token; returns why the sequence ends with it, if it does."""
        self.token_ids.append(token_id)
        if token_id in self.stop_token_ids and not self.request.sampling.ignore_eos:
            return "stop"
        if self.num_tokens - self.num_prompt_tokens >= self.request.max_tokens:
            return "length"
        return None
