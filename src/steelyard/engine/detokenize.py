"""Token ids to text as they come: whole characters only, and never a piece of a stop string.

`runtimes/generation.py` keeps one `Detokenizer` each; `TokenBytes` is shared by all of a model. No I/O. The text
of all deltas together equals the tokenizer's own decoding of all tokens, cut at the stop string.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from tokenizers import Tokenizer

from steelyard.errors import ModelLoadError

Payload = TypeVar("Payload")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """The bytes that each token stands for; control tokens stand for none.

    Raises ModelLoadError at construction for a tokenizer whose tokens aren't bytes or sentence pieces.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        decoder = msgspec.json.decode(tokenizer.to_str())["decoder"] or {}
        kinds = {part.get("type") for part in [decoder, *decoder.get("decoders", [])]}
        if "ByteLevel" in kinds:
            convert = _byte_level
        elif "ByteFallback" in kinds or "Metaspace" in kinds:
            convert = _sentence_piece
        else:
            raise ModelLoadError(f"A tokenizer with a {decoder.get('type')!r} decoder is not supported.")
        #: Sentence-piece models mark the start of their text with a space that isn't part of it.
        self.drops_leading_space = convert is _sentence_piece
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self._bytes = [b""] * (max(vocabulary.values(), default=-1) + 1)
        for token, index in vocabulary.items():
            self._bytes[index] = convert(token)
        self._shown = list(self._bytes)
        for index, added in tokenizer.get_added_tokens_decoder().items():
            self._shown[index] = added.content.encode()
            self._bytes[index] = b"" if added.special else self._shown[index]

    def __getitem__(self, token_id: int) -> bytes:
        """What the token adds to a text. A padding row of the model's head, beyond the vocabulary, adds nothing."""
        return self._bytes[token_id] if token_id < len(self._bytes) else b""

    def shown(self, token_id: int) -> bytes:
        """The same, but a control token is shown as its spelling: for lists of candidates."""
        return self._shown[token_id] if token_id < len(self._shown) else b""


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as a printable character: itself if it is one, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:  # a token that isn't spelt in the alphabet is meant literally
        return token.encode()


def _sentence_piece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()


@dataclass(frozen=True, slots=True)
class Released(Generic[Payload]):
    """Text that may be shown, and the tokens that it is made of."""

    text: str
    tokens: list[Payload]
    stopped: bool  # a stop string was completed: nothing may follow


@dataclass(slots=True)
class _Pending(Generic[Payload]):
    payload: Payload
    start: int  # characters of the whole text before this token's first
    end: int  # and before the first after it; one more while its last character is incomplete


class Detokenizer(Generic[Payload]):
    """One generation's text. Each token carries a payload that is handed back with the text it belongs to."""

    def __init__(self, table: TokenBytes, stop: Sequence[str] = ()) -> None:
        self._table = table
        self._stop = [text for text in stop if text]
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drop_space = table.drops_leading_space
        self._decoded = 0  # characters decoded so far
        self._held = ""  # decoded but not yet released
        self._tokens: deque[_Pending[Payload]] = deque()

    def push(self, token_id: int, payload: Payload) -> Released[Payload]:
        """Add one token; returns what it makes certain."""
        data = self._table[token_id]
        if self._drop_space and data:
            data = data.removeprefix(b" ")
            self._drop_space = False
        start = self._decoded
        new = self._decoder.decode(data)
        self._decoded += len(new)
        incomplete = bool(self._decoder.getstate()[0])
        self._tokens.append(_Pending(payload, start, self._decoded + incomplete))
        return self._release(new)

    def finish(self) -> Released[Payload]:
        """No token follows: an incomplete character becomes U+FFFD, held text is released."""
        new = self._decoder.decode(b"", final=True)
        self._decoded += len(new)
        released = self._release(new)
        if released.stopped:
            return released
        rest = Released(released.text + self._held, released.tokens + [t.payload for t in self._tokens], False)
        self._held = ""
        self._tokens.clear()
        return rest

    def _release(self, new: str) -> Released[Payload]:
        text = self._held + new
        if self._stop:
            cut = _first_stop(text, self._stop)
            if cut is not None:
                return self._stop_at(text, cut)
        keep = _possible_start(text, self._stop)
        self._held = text[len(text) - keep :]
        ready = self._decoded - keep
        tokens: list[Payload] = []
        while self._tokens and self._tokens[0].end <= ready:
            tokens.append(self._tokens.popleft().payload)
        return Released(text[: len(text) - keep], tokens, False)

    def _stop_at(self, text: str, cut: int) -> Released[Payload]:
        visible = self._decoded - len(text) + cut
        tokens = [token.payload for token in self._tokens if token.start < visible]
        self._held = ""
        self._tokens.clear()
        return Released(text[:cut], tokens, True)


def _first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the text ends: before the stop string that is completed first (the longest, if two end together)."""
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _possible_start(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of `text` that may be the beginning of a stop string."""
    longest = 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:size]):
                longest = size
                break
    return longest


def readable(data: bytes) -> str:
    """Bytes of a single token for display; bytes that aren't whole characters become U+FFFD."""
    return data.decode("utf-8", errors="replace")
