"""A conversation to token ids through the model's own chat template, in Jinja's sandbox.

`runtimes/llm.py` calls it, in a thread when the conversation is long. A template that refuses the messages, or fails
on them, is the client's error (400), since the template has served others.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from steelyard.engine.tokenizer import TextEncoder
from steelyard.errors import BadRequest, InvalidParameter, ModelLoadError

Message = dict[str, Any]


class ChatTemplate:
    """A compiled template. Raises ModelLoadError at construction if it is not valid Jinja."""

    def __init__(self, source: str, encoder: TextEncoder, special_tokens: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelLoadError(f"The chat template is not valid: {error}.") from error
        self._source_characters = set(source)
        self._encoder = encoder
        self._special_tokens = special_tokens

    def render(self, messages: list[Message], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Token ids up to where the assistant's answer begins. Raises BadRequest, InvalidParameter."""
        value = {"messages": [_flat(index, message) for index, message in enumerate(messages)], "tools": tools or None}
        hidden, disguised = self._encoder.disguise(value, self._source_characters)
        try:
            text = self._template.render(**hidden, **self._special_tokens, add_generation_prompt=True)
        except _Refused as error:
            raise BadRequest(f"The model's chat template refuses these messages: {error}") from error
        except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise BadRequest(f"The model's chat template cannot render these messages: {error}") from error
        return self._encoder.encode_rendered(text, disguised)


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's part for training; here it is its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Refused(Exception):
    """`raise_exception` was called in the template."""


def _raise(message: str) -> None:
    raise _Refused(message)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    # Unlike Jinja's own, this one doesn't escape for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _flat(index: int, message: Message) -> Message:
    """Content given as a list of text parts becomes one string, which is what text templates expect."""
    content = message.get("content")
    if content is None:
        return {**message, "content": ""}
    if not isinstance(content, list):
        return message
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InvalidParameter("This model takes only text parts.", param=f"messages[{index}].content")
        texts.append(part["text"])
    return {**message, "content": "".join(texts)}
