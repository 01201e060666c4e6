"""What one request really took, as a replica tells it to the router: a header of the reply, or a stream's trailer.

The replica writes it, the router takes it out again: no client sees it. A stream's head says what is known by its first
token (prompt and cached), its trailer says all. What is left out is zero, but for `cached` and `output`, which are then
not known. It is on the path of every request, and so neither JSON nor a struct.
"""

from __future__ import annotations

from typing import Final

USAGE_HEADER: Final = b"x-steelyard-usage"


class RequestUsage:
    """Tokens and rows of one request; None: nobody said."""

    __slots__ = ("cached_tokens", "image_tokens", "output_tokens", "prompt_tokens", "rows")

    def __init__(
        self,
        *,
        prompt_tokens: int = 0,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        image_tokens: int = 0,
        rows: int = 0,
    ) -> None:
        self.prompt_tokens = prompt_tokens  # of text, the cached ones included
        self.cached_tokens = cached_tokens
        self.output_tokens = output_tokens
        self.image_tokens = image_tokens
        self.rows = rows

    def __repr__(self) -> str:
        return f"RequestUsage({self.encode().decode()!r})"

    def encode(self) -> bytes:
        """The header's value."""
        parts = []
        if self.prompt_tokens:
            parts.append(b"prompt=%d" % self.prompt_tokens)
        if self.cached_tokens is not None:
            parts.append(b"cached=%d" % self.cached_tokens)
        if self.output_tokens is not None:
            parts.append(b"output=%d" % self.output_tokens)
        if self.image_tokens:
            parts.append(b"image=%d" % self.image_tokens)
        if self.rows:
            parts.append(b"rows=%d" % self.rows)
        return b";".join(parts)


def encode_rows(rows: int) -> bytes:
    """The value for a model that takes rows."""
    return b"rows=%d" % rows


def read_usage(value: bytes) -> RequestUsage | None:
    """The usage in a header's value; None where it is none. Parts that are not known are passed over."""
    usage = RequestUsage()
    for part in value.split(b";"):
        name, _, digits = part.partition(b"=")
        if not digits.isdigit() or len(digits) > 12:
            return None
        amount = int(digits)
        if name == b"rows":
            usage.rows = amount
        elif name == b"prompt":
            usage.prompt_tokens = amount
        elif name == b"cached":
            usage.cached_tokens = amount
        elif name == b"output":
            usage.output_tokens = amount
        elif name == b"image":
            usage.image_tokens = amount
    return usage
