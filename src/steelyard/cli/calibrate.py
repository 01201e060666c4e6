"""`steelyard calibrate`: find out what an endpoint's requests cost, and show it as a table and a map."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.connection import Token, Url, connect, settings
from steelyard.cli.failures import CliError
from steelyard.cli.progress import Mark, progress

if TYPE_CHECKING:
    from steelyard.cli.client import Client

POLL_S = 0.5
_HINT = "`steelyard logs NAME` shows what the model said meanwhile."


def calibrate(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    entity: Annotated[str | None, typer.Option(help="Its served entity; by default the one with most traffic.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=5, max=3600, help="Seconds that it may take; by default 30, or 420 for a LLM.")
    ] = None,
    first_token: Annotated[float | None, typer.Option(help="Latency target: seconds to the first token.")] = None,
    per_token: Annotated[float | None, typer.Option(help="Latency target: seconds per token after it.")] = None,
    whole: Annotated[float | None, typer.Option(help="Latency target: seconds of a whole answer.")] = None,
    png: Annotated[Path | None, typer.Option(help="Where to draw the cost map.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the latest result; measure nothing.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Measure what requests cost, by loading one ready replica."""
    target = {"first_token_seconds": first_token, "per_token_seconds": per_token, "whole_seconds": whole}
    target = {key: value for key, value in target.items() if value is not None}
    wishes = {"served_entity_name": entity, "budget_seconds": budget, "target": target or None}
    with connect(url, token) as client:
        if show:
            result = _latest(client, name, entity)
        else:
            begun = client.calibrate(name, {key: value for key, value in wishes.items() if value is not None})
            result = _follow(client, name, str(begun.get("served_entity_name")), quiet=as_json)
    if as_json:
        print(json.dumps(result))
        return
    _present(result, png)


def _follow(client: Client, name: str, entity: str, *, quiet: bool) -> dict[str, Any]:
    try:
        with progress() as rows:
            while True:
                job = _job(client, name, entity)
                if job.get("state") != "RUNNING":
                    break
                if not quiet:
                    done, left = int(job.get("done") or 0), int(job.get("left") or 0)
                    rows.show(name, f"{done}/{done + left} {job.get('detail') or 'starting'}")
                time.sleep(POLL_S)
            if job.get("state") == "DONE" and not quiet:
                rows.show(name, "calibrated", Mark.DONE)
    except KeyboardInterrupt:
        client.stop_calibration(name)
        raise
    measured: Any = job.get("result")
    if job.get("state") != "DONE" or not isinstance(measured, dict):
        raise CliError(str(job.get("message") or "The calibration ended without a result."), _HINT)
    return measured


def _latest(client: Client, name: str, entity: str | None) -> dict[str, Any]:
    found = [
        job["result"]
        for job in client.calibrations(name)
        if isinstance(job.get("result"), dict) and entity in (None, job.get("served_entity_name"))
    ]
    if not found:
        raise CliError(f"Nothing of {name!r} has been calibrated yet.", f"`steelyard calibrate {name}` does it.")
    newest: dict[str, Any] = max(found, key=lambda result: int(result.get("created_ms") or 0))
    return newest


def _job(client: Client, name: str, entity: str) -> dict[str, Any]:
    for job in client.calibrations(name):
        if job.get("served_entity_name") == entity:
            return job
    raise CliError(f"The platform has forgotten the calibration of {name!r}.", "Start it again.")


def _present(result: dict[str, Any], png: Path | None) -> None:
    from steelyard.cli.cost_map import cost_table, draw, summary, windows_table
    from steelyard.cli.view import console

    screen = console()
    screen.print(cost_table(result))
    screen.print()
    screen.print(windows_table(result))
    for line in summary(result):
        screen.print(line, markup=False, highlight=False)
    path = png or settings().calibrations_dir / f"{result['endpoint']}.png"
    try:
        drawn = draw(result, path)
    except OSError as error:
        raise CliError(f"The cost map cannot be written to {path} ({error.strerror}).", "Give --png FILE.") from error
    if drawn:
        screen.print(f"Cost map: {path}", markup=False, highlight=False)
    elif png is not None:
        raise CliError("Drawing needs matplotlib.", "pip install 'steelyard[simulate]'.")
