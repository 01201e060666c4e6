"""`steelyard doctor`: looks at this machine and at the platform, and says what is wrong and what would help."""

from __future__ import annotations

import sys

import typer

from steelyard.cli import machine
from steelyard.cli.connection import Connection, Token, Url, connect, find, settings
from steelyard.cli.failures import CliError
from steelyard.cli.machine import Check
from steelyard.settings import Settings


def doctor(url: Url = None, token: Token = None) -> None:
    """Check this machine and the platform. Exit status 1 when something must be mended."""
    from rich.console import Console
    from rich.markup import escape

    current = settings()
    checks = [
        machine.python_version(),
        machine.kernel(),
        machine.processors(),
        machine.memory(),
        machine.disk(current),
        machine.open_files(),
        machine.sockets(current),
        machine.optional_package("mlflow", "models packaged with MLflow", "mlflow"),
        machine.optional_package("torch", "language models", "llm"),
        machine.optional_package("lightgbm", "the sample models", "samples"),
        *_platform(find(url, token), current),
    ]
    console = Console(soft_wrap=True)
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for check in checks:
        level = f"[{colours[check.level]}]{check.level:<4}[/]"
        console.print(f"{level}  {check.name:<10}  {escape(check.text)}", highlight=False)
        if check.hint:
            console.print(f"                  hint: {escape(check.hint)}", highlight=False)
    failed = [check for check in checks if check.level == "fail"]
    if failed:
        print(f"error: {len(failed)} of {len(checks)} checks failed.", file=sys.stderr)
        raise typer.Exit(1)


def _platform(connection: Connection, current: Settings) -> list[Check]:
    """Whether the platform answers, and to this token; without one, whether its port is free."""
    with connect(connection.url, connection.token) as client:
        if not client.reachable():
            if not connection.on_this_machine:
                return [
                    Check("platform", "fail", f"nothing answers at {connection.url}", "Check --url and the network.")
                ]
            if machine.port_is_free(current.host, current.port):
                hint = "`steelyard up` starts it."
                return [Check("platform", "warn", f"not running; port {current.port} is free", hint)]
            text = f"not running, and port {current.port} is taken by something else"
            return [Check("platform", "fail", text, "Free it, or start with `steelyard up --port N`.")]
        found = [Check("platform", "ok", f"answers at {connection.url}")]
        try:
            names = [str(endpoint.get("name")) for endpoint in client.endpoints()]
        except CliError as error:
            return [*found, Check("token", "fail", error.message, error.hint)]
        return [*found, Check("token", "ok", f"valid; {len(names)} endpoint{'s' * (len(names) != 1)}")]
