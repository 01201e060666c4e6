"""`steelyard query`: one request to an endpoint, from the command line, a file or a pipe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from steelyard.cli.connection import Token, Url, connect
from steelyard.cli.failures import CliError, usage_error

_HINT = """For example '{"inputs": [[1, 2]]}', @request.json, - for stdin, or --chat 'Hello'."""


def query(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    body: Annotated[str | None, typer.Argument(metavar="[JSON|@FILE|-]", help="The request's body.")] = None,
    chat: Annotated[str | None, typer.Option(help="Send this text as a chat message instead of a body.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="With --chat: 0 is the likeliest text.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="With --chat: length limit of the answer.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the answer as it is made.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Ask an endpoint."""
    request = _request(body, chat, {"temperature": temperature, "max_tokens": max_tokens})
    with connect(url, token) as client:
        if stream:
            if not isinstance(request, dict):
                raise usage_error("Only a JSON object can be streamed.", _HINT)
            for data in client.stream(name, json.dumps({**request, "stream": True}).encode()):
                sys.stdout.write(streamed_text(data))
                sys.stdout.flush()
            print()
            return
        answer = client.query(name, json.dumps(request).encode())
    if chat is not None and (text := chat_text(answer)) is not None:
        print(text)
    else:
        print(json.dumps(answer, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def chat_text(answer: Any) -> str | None:
    """The text of a chat completion, or None when the answer is of another kind."""
    try:
        return str(answer["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        return None


def streamed_text(data: str) -> str:
    """What one event adds to the answer's text; an event of another kind is shown whole, on its own line."""
    try:
        event = json.loads(data)
        choices = event["choices"]
    except (ValueError, KeyError, TypeError):
        return f"{data}\n"
    pieces = [(choice.get("delta") or {}).get("content") or choice.get("text") or "" for choice in choices]
    return "".join(pieces)


def _request(body: str | None, chat: str | None, options: dict[str, float | None]) -> Any:
    options = {name: value for name, value in options.items() if value is not None}
    if (body is None) == (chat is None):
        raise usage_error("Give a body or --chat, one of them.", _HINT)
    if body is None:
        return {"messages": [{"role": "user", "content": chat}], **options}
    if options:
        raise usage_error(f"{', '.join(options)} can be given with --chat only.", "Put them into the body.")
    try:
        return json.loads(_text(body))
    except ValueError as error:
        raise usage_error(f"The body is not JSON: {error}.", _HINT) from error


def _text(body: str) -> str:
    if body == "-":
        return sys.stdin.read()
    if not body.startswith("@"):
        return body
    try:
        return Path(body[1:]).expanduser().read_text()
    except OSError as error:
        raise CliError(f"{body[1:]} cannot be read: {error.strerror}.") from error
