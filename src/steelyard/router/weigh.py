"""What a request weighs: before it is sent from its bytes, afterwards from what the replica says that it took.

One `Weigher` per served entity; the exchange asks. It learns how many bytes make a row or a token and how long answers
are, from successful requests only, and never parses text: of a conversation it hashes whole blocks of raw JSON, which
stay the same from turn to turn.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from steelyard.contracts.usage import RequestUsage, read_usage
from steelyard.policy.body_size import BodySize
from steelyard.policy.output_length import OutputLengths
from steelyard.policy.routing import Ask
from steelyard.policy.units import GUESS, CostModel, Features
from steelyard.router.body_fields import BodyFields, read_fields, whole_number

BLOCK_BYTES: Final = 256
MOST_BLOCKS: Final = 1024
_ROW_BYTES: Final = 100.0  # until something was learnt, and so
_TOKEN_BYTES: Final = 4.0
_MOST_KEPT: Final = 256


class Weight:
    """`size_bytes`: what the estimate was made of. `choices`: how many answers of one prompt; 0: no text."""

    __slots__ = ("ask", "choices", "size_bytes")

    def __init__(self, ask: Ask, size_bytes: int, choices: int) -> None:
        self.ask = ask
        self.size_bytes = size_bytes
        self.choices = choices


class Price:
    """What a reported usage costs; `label` is the same in MU, for the client."""

    __slots__ = ("label", "mmu", "usage")

    def __init__(self, usage: RequestUsage, mmu: int) -> None:
        self.usage = usage
        self.mmu = mmu
        self.label = b"%d.%03d" % (mmu // 1000, mmu % 1000)


class Weigher:
    """`generates`: the model is asked with messages or prompts."""

    __slots__ = (
        "_by_length",
        "_by_length_version",
        "_counts_rows",
        "_outputs",
        "_prices",
        "_rows",
        "_tokens",
        "cost",
        "generates",
    )

    def __init__(self) -> None:
        self.cost: CostModel = GUESS
        self.generates = False
        self._counts_rows = False  # its replicas count no tokens, whatever its task
        self._rows = BodySize(_ROW_BYTES)
        self._tokens = BodySize(_TOKEN_BYTES)
        self._outputs = OutputLengths()
        self._by_length: dict[int, Weight] = {}  # of requests with rows, which weigh alike when they are as long
        self._by_length_version = 0
        self._prices: dict[bytes, Price] = {}

    def set_cost(self, cost: CostModel) -> None:
        self.cost = cost
        self._by_length = {}
        self._prices = {}

    def weigh(
        self, body: bytes, fields: BodyFields | None, principal: str, session: bytes | None, several: bool
    ) -> Weight:
        """`fields`: of the body, if they were read already. `several`: there is a choice between replicas."""
        if self.generates and not self._counts_rows:
            if fields is None:
                fields = read_fields(body)
            if fields is not None:
                text = bytes(fields.messages) or bytes(fields.prompt)
                if text:
                    return self._weigh_text(text, fields, principal, session, several)
        size_bytes = len(body)
        version = self._rows.version
        if version != self._by_length_version or len(self._by_length) > _MOST_KEPT:
            self._by_length_version = version
            self._by_length = {}
        weight = self._by_length.get(size_bytes)
        if weight is None:
            ask = Ask(Features(rows=self._rows.estimate(size_bytes)), self.cost)
            weight = self._by_length[size_bytes] = Weight(ask, size_bytes, 0)
        return weight

    def price(self, value: bytes) -> Price | None:
        """Of a usage header; None when it cannot be read."""
        price = self._prices.get(value)
        if price is None:
            usage = read_usage(value)
            if usage is None:
                return None
            price = self.price_of(usage)
            if len(self._prices) > _MOST_KEPT:
                self._prices = {}
            self._prices[value] = price
        return price

    def price_of(self, usage: RequestUsage) -> Price:
        return Price(usage, self.cost.mmu(features_of(usage, usage.output_tokens or 0)))

    def learn(self, weight: Weight, usage: RequestUsage, principal: str) -> None:
        """A request succeeded and took so much."""
        self._counts_rows = not usage.prompt_tokens and usage.rows > 0
        if weight.choices:
            self._tokens.learn(weight.size_bytes, usage.prompt_tokens)
            if usage.output_tokens is not None and usage.prompt_tokens:
                self._outputs.learn(principal, usage.output_tokens / weight.choices)
        else:
            self._rows.learn(weight.size_bytes, usage.rows)

    def _weigh_text(
        self, text: bytes, fields: BodyFields, principal: str, session: bytes | None, several: bool
    ) -> Weight:
        tools = bytes(fields.tools)
        size_bytes = len(text) + len(tools)
        choices = whole_number(fields.n) or 1
        limit = whole_number(fields.max_completion_tokens) or whole_number(fields.max_tokens)
        features = Features(
            input_tokens=self._tokens.estimate(size_bytes),
            output_tokens=choices * self._outputs.estimate(principal, limit),
        )
        if not several:
            return Weight(Ask(features, self.cost), size_bytes, choices)
        blocks = hash_blocks(text, tools)
        key: int | None = None
        named = session or bytes(fields.prompt_cache_key) or bytes(fields.user)
        if named:
            key = int.from_bytes(blake2b(named, digest_size=8, person=b"key").digest(), "little")
        elif blocks:
            key = blocks[0]
        block_tokens = features.input_tokens * BLOCK_BYTES / size_bytes
        return Weight(Ask(features, self.cost, blocks, block_tokens, key), size_bytes, choices)


def features_of(usage: RequestUsage, output_tokens: float) -> Features:
    cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
    return Features(
        input_tokens=usage.prompt_tokens - cached,
        cached_tokens=cached,
        output_tokens=output_tokens,
        image_tokens=usage.image_tokens,
        rows=usage.rows,
    )


def hash_blocks(text: bytes, tools: bytes) -> tuple[int, ...]:
    """Chained hashes of the whole blocks of a conversation's raw JSON, after its tools: what comes first in a prompt.

    The next turn's JSON begins with this one's, but for the bracket that ends it. Equal in every process.
    """
    chain = blake2b(tools, digest_size=8, person=b"blocks")
    blocks: list[int] = []
    end = len(text) - 1  # without the bracket or quotation mark
    for start in range(0, min(end - BLOCK_BYTES + 1, MOST_BLOCKS * BLOCK_BYTES), BLOCK_BYTES):
        chain.update(text[start : start + BLOCK_BYTES])
        blocks.append(int.from_bytes(chain.digest(), "little"))
    return tuple(blocks)
