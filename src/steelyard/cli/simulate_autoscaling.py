"""`steelyard simulate autoscaling`: our horizontal axis beside the autoscalers that people run, on a virtual clock.

Thin: it reads options, runs `steelyard.simulate` and shows what came of it. It talks to no platform.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.choices import among
from steelyard.cli.failures import CliError, usage_error

if TYPE_CHECKING:
    from rich.table import Table

    from steelyard.simulate.autoscaling_plots import Picture
    from steelyard.simulate.autoscaling_scores import Score
    from steelyard.simulate.loads import Load


def autoscaling(
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces", help="Folder of recorded traces (see docs/autoscaling.md); none: synthetic loads only."
        ),
    ] = None,
    load: Annotated[list[str] | None, typer.Option("--load", help="Only this load; may be repeated.")] = None,
    autoscaler: Annotated[
        list[str] | None, typer.Option("--autoscaler", help="Only this autoscaler; may be repeated.")
    ] = None,
    days: Annotated[float, typer.Option("--days", help="Of each envelope of days, at most.")] = 2.0,
    target_s: Annotated[float, typer.Option("--target-s", help="How long a request may wait.")] = 10.0,
    seed: Annotated[int, typer.Option("--seed", help="Of arrivals, starts and lost metrics.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="Write scores.csv and plots into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line per score, then one of all.")] = False,
) -> None:
    """Compare autoscalers: rejected requests, waits, replica-hours, changes, time to recover, per load."""
    from rich.console import Console

    from steelyard.simulate.autoscaling import NAMES, run
    from steelyard.simulate.autoscaling_scores import lost, scored, verdict
    from steelyard.simulate.loads import available

    scores: list[Score] = []
    try:
        if not (target_s > 0 and days > 0):
            raise ValueError("A target and a number of days must be above 0.")
        found = available(traces, seed, days)
        wanted, autoscalers = among(load, list(found), "load"), among(autoscaler, NAMES, "autoscaler")
        for name in wanted:
            drawn = found[name]()
            picture = None if out is None else _picture(drawn, out)
            for scaler in autoscalers:
                done = run(drawn, scaler, target_s=target_s, seed=seed)
                scores.append(scored(done, target_s))
                if picture is not None:
                    picture.add(done)
                if as_json:
                    print(json.dumps(asdict(scores[-1])), flush=True)
                elif sys.stderr.isatty():
                    print(f"{name}: {scaler}", file=sys.stderr)
            if picture is not None and out is not None:
                picture.save(out)
    except (ValueError, OSError) as error:
        raise usage_error(str(error)) from error
    if out is not None:
        _write(scores, out)
    if as_json:
        print(json.dumps({**verdict(scores), "lost": lost(scores)}))
        return
    console = Console()
    console.print(_table(scores))
    lines = lost(scores)
    if lines:
        console.print("\nLost: fewer requests missed the target, or as few with fewer replica-hours:")
    for line in lines:
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def _picture(load: Load, folder: Path) -> Picture:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        from steelyard.simulate.autoscaling_plots import Picture
    except ImportError as error:
        raise CliError("Plots need matplotlib.", "pip install 'steelyard[simulate]'") from error
    return Picture(load.arrivals, load.name)


def _write(scores: list[Score], folder: Path) -> None:
    from steelyard.simulate.autoscaling_scores import Score

    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Score)], lineterminator="\n")
        writer.writeheader()
        for score in scores:
            writer.writerow(
                {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in asdict(score).items()}
            )


def _table(scores: list[Score]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("load", no_wrap=True)
    for title in ("rejected", "p50 s", "p99 s", "in time", "hours", "most", "turns", "back s"):
        table.add_column(title, justify="right", no_wrap=True)
    name: str | None = None
    for score in scores:
        if name != score.load:
            name = score.load
            table.add_row(f"[bold]{name}[/]")
        table.add_row(
            f"  {score.autoscaler}",
            f"{score.rejected:.0f}",
            f"{score.wait_p50_s:.1f}",
            f"{score.wait_p99_s:.1f}",
            f"{100 * score.attainment:.3f}",
            f"{score.replica_hours:.1f}",
            f"{score.most_replicas}",
            f"{score.turns}",
            "-" if score.recover_s is None else f"{score.recover_s:.0f}",
        )
    return table
