"""`steelyard usage`: who used how much of which endpoint."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.connection import Token, Url, connect
from steelyard.cli.view import console

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = {
    "REQUESTS": "requests",
    "ROWS": "rows",
    "INPUT": "input_tokens",
    "CACHED": "cached_tokens",
    "OUTPUT": "output_tokens",
    "IMAGES": "image_tokens",
    "MODEL UNITS": "model_units",
}


def usage(
    names: Annotated[list[str] | None, typer.Argument(help="Names of endpoints; by default all.")] = None,
    hours: Annotated[float, typer.Option(min=0, max=9600, help="How far to look back; counted by whole hours.")] = 24,
    by_hour: Annotated[bool, typer.Option("--by-hour", help="One line per hour.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show what each tenant used: requests, rows, tokens and model units."""
    end_ms = int(time.time() * 1000)
    start_ms = max(0, end_ms - int(hours * 3_600_000))
    with connect(url, token) as client:
        wanted = names or [str(endpoint.get("name")) for endpoint in client.endpoints()]
        found = [
            {"endpoint": name} | item
            for name in wanted
            for item in client.usage(name, start_ms, end_ms, "hour" if by_hour else "total")
        ]
    if as_json:
        for item in found:
            print(json.dumps(item))
        return
    console().print(_table(found, by_hour=by_hour))


def _table(found: list[dict[str, Any]], *, by_hour: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("ENDPOINT", "ENTITY", "PRINCIPAL", *(["HOUR"] if by_hour else [])):
        table.add_column(column, no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, no_wrap=True, justify="right")
    for item in found:
        hour = time.strftime("%Y-%m-%d %H:%M", time.localtime(int(item.get("start_time") or 0) / 1000))
        keys = [str(item.get(key) or "–") for key in ("endpoint", "served_entity_name", "principal")]
        amounts = [item.get(key) or 0 for key in _COLUMNS.values()]
        table.add_row(*keys, *([hour] if by_hour else []), *(f"{amount:,.0f}" for amount in amounts))
    return table
