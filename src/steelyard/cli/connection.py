"""Which platform a command talks to: options, then environment, then the file that `steelyard up` wrote.

Called by every command but `up`; `up` calls `save`. Holds the option types that all commands share.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.failures import CliError, usage_error
from steelyard.settings import Settings

if TYPE_CHECKING:
    from steelyard.cli.client import Client

Url = Annotated[
    str | None, typer.Option("--url", envvar="STEELYARD_URL", help="The platform's URL.", show_default=False)
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="STEELYARD_TOKEN", help="A bearer token of the platform.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Connection:
    url: str
    token: str | None

    @property
    def on_this_machine(self) -> bool:
        """Paths mean the same to the platform as to us."""
        return is_loopback(_host_of(self.url))


def is_loopback(host: str) -> bool:
    """True for names and addresses that never leave this machine."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def find(url: str | None, token: str | None) -> Connection:
    """Complete what the options leave open. The saved token goes to the URL that it belongs to, and to no other."""
    saved = load(settings().client_file)
    chosen = url or (saved.url if saved else None) or settings().url
    if "://" not in chosen:
        chosen = f"http://{chosen}"
    if not _host_of(chosen) or not chosen.startswith(("http://", "https://")):
        raise usage_error(f"{chosen!r} is not a URL.", "It looks like http://127.0.0.1:8080.")
    chosen = chosen.rstrip("/")
    return Connection(chosen, token or (saved.token if saved and saved.url == chosen else None))


def connect(url: str | None, token: str | None) -> Client:
    """A client of the platform that the options mean; use it in a `with` block."""
    from steelyard.cli.client import Client

    return Client(find(url, token))


def settings(**overrides: object) -> Settings:
    """Settings from the environment, or one line about the variable that is wrong."""
    try:
        return Settings.from_env(**overrides)
    except ValueError as error:
        raise usage_error(str(error), "Unset the variable or correct it.") from error


def save(connection: Connection, path: Path) -> None:
    """Write URL and token where later commands find them, readable by this user alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": connection.url, "token": connection.token}, file)
    new.replace(path)


def load(path: Path) -> Connection | None:
    """What an earlier start wrote to `path`; None when there was none."""
    try:
        values = json.loads(path.read_text())
        return Connection(str(values["url"]), values["token"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} cannot be read ({error}).", "Delete it and start `steelyard up` again.") from error


def _host_of(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return (parts.hostname or "") if parts.port != 0 else ""
    except ValueError:
        return ""
