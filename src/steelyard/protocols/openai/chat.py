"""A chat completion request: its messages checked one by one, its options in `Sampling`.

Called by the replica for `/v1/chat/completions` and for `/invocations` bodies with `messages`. Messages leave here as
plain dicts whose content is text, ready for a chat template; images, audio and tools are refused by name for now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from steelyard.errors import InvalidParameter
from steelyard.protocols.openai.fields import (
    MAX_TOP_LOGPROBS,
    CommonFields,
    Sampling,
    include_usage_of,
    refuse,
    require_type,
    sampling_of,
    stops_of,
)
from steelyard.protocols.strict_json import convert, json_type

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: list[dict[str, Any]]
    sampling: Sampling
    n: int = 1
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False


class _Fields(CommonFields, frozen=True, kw_only=True):
    messages: Any = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None


def parse_chat(body: dict[str, Any]) -> ChatRequest:
    """The request. Raises InvalidParameter naming the field."""
    fields = convert(body, _Fields)
    _refuse_unsupported(body)
    if fields.top_logprobs is not None and not fields.logprobs:
        raise InvalidParameter("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")
    return ChatRequest(
        messages=_messages(fields.messages),
        sampling=sampling_of(fields, (fields.top_logprobs or 0) if fields.logprobs else None),
        n=fields.n or 1,
        stop=stops_of(fields.stop),
        max_tokens=_max_tokens(fields),
        stream=bool(fields.stream),
        include_usage=include_usage_of(fields),
    )


def _max_tokens(fields: _Fields) -> int | None:
    if fields.max_completion_tokens is None:
        return fields.max_tokens
    if fields.max_tokens not in (None, fields.max_completion_tokens):
        raise InvalidParameter("'max_tokens' and 'max_completion_tokens' disagree; send one.", param="max_tokens")
    return fields.max_completion_tokens


def _refuse_unsupported(body: dict[str, Any]) -> None:
    refuse(body, "tools", "is not supported by this endpoint yet", [])
    refuse(body, "functions", "is not supported by this endpoint yet", [])
    refuse(body, "tool_choice", "is not supported by this endpoint yet", "none", "auto")
    refuse(body, "function_call", "is not supported by this endpoint yet", "none", "auto")
    refuse(body, "response_format", "supports only {'type': 'text'} on this endpoint", {"type": "text"})
    refuse(body, "modalities", "supports only ['text'] on this endpoint", ["text"])
    refuse(body, "audio", "is not supported by this endpoint")


def _messages(messages: Any) -> list[dict[str, Any]]:
    if messages is None:
        raise InvalidParameter("The field 'messages' is required.", param="messages")
    require_type(messages, list, "messages", "an array")
    if not messages:
        raise InvalidParameter("'messages' must hold at least one message.", param="messages")
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def _message(message: Any, path: str) -> dict[str, Any]:
    require_type(message, dict, path, "an object")
    role = message.get("role")
    if role not in ROLES:
        raise InvalidParameter(f"'{path}.role' must be one of {', '.join(ROLES)}.", param=f"{path}.role")
    result: dict[str, Any] = {"role": role, "content": _content(message, role, f"{path}.content")}
    for name in ("name", "tool_call_id"):
        if message.get(name) is not None:
            require_type(message[name], str, f"{path}.{name}", "a string")
            result[name] = message[name]
    if message.get("tool_calls"):
        require_type(message["tool_calls"], list, f"{path}.tool_calls", "an array")
        result["tool_calls"] = message["tool_calls"]
    return result


def _content(message: dict[str, Any], role: str, path: str) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part, f"{path}[{place}]") for place, part in enumerate(content))
    if content is None and role == "assistant":  # a turn that only called tools, or refused
        return ""
    raise InvalidParameter(f"'{path}' must be a string or an array of parts, not {json_type(content)}.", param=path)


def _part(part: Any, path: str) -> str:
    require_type(part, dict, path, "an object")
    if part.get("type") != "text":
        raise InvalidParameter(f"'{path}.type' must be 'text' on this endpoint.", param=f"{path}.type")
    text = part.get("text")
    require_type(text, str, f"{path}.text", "a string")
    return str(text)
