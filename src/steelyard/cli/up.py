"""`steelyard up`: starts the platform in this terminal, deploys the samples if asked, says how to ask them, and stops
everything at Ctrl-C or SIGTERM. The processes are the supervisor's; this only prepares, shows and waits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.connection import Connection, is_loopback, load, save, settings
from steelyard.cli.failures import CliError, usage_error

if TYPE_CHECKING:
    from steelyard.settings import Settings


def up(
    samples: Annotated[bool, typer.Option("--samples", help="Train and deploy the sample models.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.  [default: 8080]")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of all state.  [default: ~/.steelyard]")] = None,
    routers: Annotated[int | None, typer.Option(min=1, max=64, help="Router processes.  [default: 1]")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Ask for no token; only on a loopback host.")] = False,
    store_url: Annotated[
        str | None, typer.Option(help="Database URL, such as postgresql+asyncpg://…  [default: SQLite in home]")
    ] = None,
) -> None:
    """Start the platform and keep it running until Ctrl-C."""
    current = settings(
        host=host,
        port=port,
        home=home.expanduser().absolute() if home else None,
        routers=routers,
        auth=False if no_auth else None,
        store_url=store_url,
    )
    check(current)
    from steelyard.cli.session import run_session

    run_session(current, with_samples=samples)


def check(current: Settings) -> None:
    """Refuse what cannot or must not be started, in one line."""
    from steelyard.cli import machine

    if not current.auth and not is_loopback(current.host):
        raise usage_error(
            f"--no-auth is refused on {current.host}: everybody who reaches it could use and change the platform.",
            "Leave out --no-auth, or use --host 127.0.0.1.",
        )
    if not machine.port_is_free(current.host, current.port):
        if holder := machine.platform_on(current.home):
            raise CliError(
                f"A platform runs on {current.home} already (process {holder}).",
                "`steelyard endpoints` shows what it serves. Stop it first, or give another --home and --port.",
            )
        raise CliError(
            f"{current.host}:{current.port} cannot be listened on; another program may hold it.",
            "Choose another with --port, or see what `steelyard doctor` finds.",
        )
    if (path := machine.sockets(current)).level == "fail":
        raise CliError(path.text, path.hint)


def connection_for(current: Settings, first_token: str | None) -> Connection:
    """URL and token of the platform that runs on `current`, kept for the other commands.

    The first start makes the token; a later one finds it where the first one saved it.
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(current.host, current.host)
    url = f"http://[{host}]:{current.port}" if ":" in host else f"http://{host}:{current.port}"
    before = load(current.client_file)
    token = (first_token or (before.token if before else None)) if current.auth else None
    if current.auth and token is None:
        return Connection(url, None)
    kept = token or (before.token if before else None)
    save(Connection(url, kept), current.client_file)
    return Connection(url, token)
