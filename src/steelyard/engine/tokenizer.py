"""Text to token ids, with one promise: what a user writes never becomes a control token by looking like one.

`runtimes/llm.py` owns one `TextEncoder` per model. Text written by a model's author (the chat template) may name
control tokens; text inside messages may only contain their spelling, which is encoded letter by letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from tokenizers import Tokenizer

_PRIVATE_USE = range(0xF0000, 0x110000)  # Unicode planes 15 and 16: no meaning, no case, no whitespace


class TextEncoder:
    """Encodes whole prompts and rendered conversations. Thread-safe: nothing changes after construction."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._plain, self._plain_inside = _without_added_tokens(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self._added_ids = {token.content: index for index, token in added.items()}
        self._control = sorted((t.content for t in added.values() if t.special and t.content), key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, self._control))) if self._control else None
        pieces = sorted((t for t in added.values() if t.content), key=lambda token: -len(token.content))
        space = (r"", r"\s*")  # some added tokens swallow the space before or after them
        alternatives = [f"{space[t.lstrip]}(?:{re.escape(t.content)}){space[t.rstrip]}" for t in pieces]
        self._added_pattern = re.compile("|".join(alternatives)) if alternatives else None

    def encode_prompt(self, text: str) -> list[int]:
        """A raw prompt, all of it the caller's own: control tokens are recognised, a begin token is added if the
        model wants one."""
        return _ids(self._tokenizer, text, add_special_tokens=True)

    def disguise(self, value: Any, taken: set[str]) -> tuple[Any, Mapping[str, str]]:
        """A copy of `value` (strings in lists and dicts) in which each spelling of a control token is one
        private-use character that occurs neither in `value` nor in `taken`; and what each of them stands for."""
        if self._control_pattern is None:
            return value, {}
        seen = set(taken)
        _collect_characters(value, seen)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in seen)
        mask = dict(zip(self._control, free, strict=False))
        pattern = self._control_pattern

        def hide(text: str) -> str:
            return pattern.sub(lambda match: mask[match[0]], text)

        return _map_strings(value, hide), {character: token for token, character in mask.items()}

    def encode_rendered(self, text: str, disguised: Mapping[str, str]) -> list[int]:
        """A rendered template: added tokens in it are the template's own, `disguised` characters are text."""
        ids: list[int] = []
        position = 0
        for match in self._added_pattern.finditer(text) if self._added_pattern else ():
            ids += self._encode_plain(text[position : match.start()], disguised, at_start=position == 0)
            ids.append(self._added_id(match[0]))
            position = match.end()
        return ids + self._encode_plain(text[position:], disguised, at_start=position == 0)

    def _added_id(self, matched: str) -> int:
        found = self._added_ids.get(matched)
        return found if found is not None else self._added_ids[matched.strip()]

    def _encode_plain(self, text: str, disguised: Mapping[str, str], at_start: bool) -> list[int]:
        if not text:
            return []
        if disguised:
            text = text.translate({ord(character): token for character, token in disguised.items()})
        return _ids(self._plain if at_start else self._plain_inside, text, add_special_tokens=False)


def _ids(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    # The batch call, because it lets go of the interpreter lock while it works and the single one does not.
    ids: list[int] = tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)[0].ids
    return ids


def _without_added_tokens(tokenizer: Tokenizer) -> tuple[Tokenizer, Tokenizer]:
    """The same tokenizer blind to added tokens: for text at the start of a prompt, and for text further inside
    (which differs only where a model marks the start of its text with a space)."""
    spec = msgspec.json.decode(tokenizer.to_str())
    spec["added_tokens"] = []
    spec["post_processor"] = None
    plain = Tokenizer.from_str(msgspec.json.encode(spec).decode())
    parts = spec["pre_tokenizer"] or {}
    metaspaces = [
        part
        for part in [parts, *parts.get("pretokenizers", [])]
        if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first"
    ]
    if not metaspaces:
        return plain, plain
    for part in metaspaces:
        part["prepend_scheme"] = "never"
    return plain, Tokenizer.from_str(msgspec.json.encode(spec).decode())


def _collect_characters(value: Any, into: set[str]) -> None:
    if isinstance(value, str):
        into.update(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect_characters(key, into)
            _collect_characters(item, into)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect_characters(item, into)


def _map_strings(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_map_strings(key, change): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
