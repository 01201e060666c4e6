"""One attempt of a request on a simulated replica, and who hears of its life.

The cell makes sequences, the replica alone changes them. They hold counts, never text, and know no clock.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

K = TypeVar("K")


class Sequence(Generic[K]):
    """One attempt of a request on a replica. `tag` is whatever its owner wants back."""

    __slots__ = (
        "blocks",
        "cached_tokens",
        "context_tokens",
        "emitted",
        "end_blocks",
        "finish_step",
        "joined_step",
        "matched",
        "output_tokens",
        "pinned",
        "private_tokens",
        "prompt_left",
        "prompt_tokens",
        "stay",
        "tag",
    )

    def __init__(
        self,
        tag: K,
        prompt_tokens: int,
        output_tokens: int,
        blocks: tuple[int, ...] = (),
        end_blocks: tuple[int, ...] = (),
    ) -> None:
        self.tag = tag
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.blocks = blocks
        self.end_blocks = end_blocks
        self.cached_tokens = -1  # found when it was first admitted; -1: it was not
        self.emitted = 0  # tokens, as of the last time that its decoding began or stopped
        self.prompt_left = 0
        self.matched = 0  # blocks found at this admission
        self.pinned: tuple[int, ...] = ()
        self.private_tokens = 0  # held beside the pinned blocks, without what decoding added
        self.joined_step = 0  # of the replica, when its decoding began
        self.context_tokens = 0  # then
        self.finish_step = 0
        self.stay = 0  # number of its admission: an older entry of the finishing queue is not this one's


class Listener(Protocol[K]):
    """Who hears of a sequence's life: the simulated router's side of the connection."""

    def first_token(self, sequence: Sequence[K]) -> None: ...

    def finished(self, sequence: Sequence[K]) -> None: ...

    def lost(self, sequence: Sequence[K]) -> None: ...  # the replica died; `emitted` says whether output was seen
