"""`steelyard endpoints`, `delete`, `stop`, `start`: see and steer the endpoints that there are."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.connection import Token, Url, connect
from steelyard.cli.failures import usage_error
from steelyard.cli.view import console, endpoints_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from steelyard.cli.client import Client

Name = Annotated[str, typer.Argument(help="Name of the endpoint.")]
WATCH_S = 1.0


def endpoints(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep the table up to date until Ctrl-C.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the endpoints and how they are."""
    from rich.live import Live

    screen = console()
    with connect(url, token) as client:
        if not watch:
            screen.print(_table(client))
            return
        with Live(_table(client), console=screen, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_S)
                live.update(_table(client), refresh=True)


def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Delete an endpoint: it takes no more requests, running ones may finish, and it cannot be brought back."""
    with connect(url, token) as client:
        client.endpoint(name)  # an unknown name is told before the question
        if not yes:
            if not sys.stdin.isatty():
                raise usage_error("Nobody is here to confirm.", f"steelyard delete {name} --yes")
            typer.confirm(f"Delete {name}?", abort=True)
        client.delete(name)
    print(f"{name}: deleted")


def stop(name: Name, url: Url = None, token: Token = None) -> None:
    """Stop an endpoint's replicas and keep its configuration."""
    with connect(url, token) as client:
        client.stop(name)
    print(f"{name}: stopped")


def start(
    name: Name,
    wait: Annotated[bool, typer.Option(help="Wait until the model serves.")] = True,
    url: Url = None,
    token: Token = None,
) -> None:
    """Start a stopped endpoint again."""
    from steelyard.cli.deploy import follow

    with connect(url, token) as client:
        client.start(name)
        if wait:
            follow(client, name)
        else:
            print(f"{name}: starting")


def _table(client: Client) -> RenderableType:
    found = client.endpoints()
    return endpoints_table(found) if found else "No endpoints yet. `steelyard deploy NAME URI` makes one."
