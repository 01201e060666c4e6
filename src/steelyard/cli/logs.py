"""`steelyard logs` and `steelyard events`: what a model printed, and what happened to its endpoint."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.connection import Token, Url, connect
from steelyard.cli.failures import CliError
from steelyard.cli.loglines import readable
from steelyard.cli.view import entities_of

if TYPE_CHECKING:
    from steelyard.cli.client import Client

FOLLOW_S = 1.0


def logs(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    entity: Annotated[str | None, typer.Option(help="Served entity; all of them when left out.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show the output of an endpoint's models."""
    with connect(url, token) as client:
        names = _entities(client, name, entity)
        seen = dict.fromkeys(names, "")
        while True:
            for one in names:
                text = client.logs(name, one)
                _write(new_part(seen[one], text), one if len(names) > 1 else "")
                seen[one] = text
            if not follow:
                return
            time.sleep(FOLLOW_S)


def events(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")], url: Url = None, token: Token = None
) -> None:
    """Show what happened to an endpoint, oldest first."""
    with connect(url, token) as client:
        found = client.events(name)
    for event in found:
        moment = datetime.fromtimestamp(int(event.get("timestamp") or 0) / 1000, tz=UTC).astimezone()
        entity, kind = event.get("served_entity") or "", event.get("kind") or ""
        print(f"{moment:%Y-%m-%d %H:%M:%S}  {kind:<20}  {entity:<16}  {event.get('message') or ''}".rstrip())


def new_part(before: str, after: str) -> str:
    """What `after` adds to `before`, when both are the newest part of one growing text."""
    if after.startswith(before):
        return after[len(before) :]
    # Its beginning was cut off meanwhile: go on after the longest end of `before` that `after` begins with.
    lines = before.splitlines(keepends=True)
    for first in range(1, len(lines)):
        tail = "".join(lines[first:])
        if after.startswith(tail):
            return after[len(tail) :]
    return after


def _entities(client: Client, name: str, entity: str | None) -> list[str]:
    endpoint = client.endpoint(name)
    rows = [*entities_of(endpoint), *entities_of(endpoint, "pending_config")]
    names = list(dict.fromkeys(row.name for row in rows))
    if entity is None:
        return names
    if entity not in names:
        raise CliError(f"{name} has no served entity {entity!r}.", f"It has: {', '.join(names) or 'none'}.")
    return [entity]


def _write(text: str, prefix: str) -> None:
    for line in readable(text):
        print(f"{prefix}: {line}" if prefix else line)
    sys.stdout.flush()
