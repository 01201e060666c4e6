"""`steelyard simulate`: `autoscaling` in a module of its own, and here `routing`, the policies side by side.

Thin: it reads options, runs `steelyard.simulate` and shows what came of it. It talks to no platform.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.choices import among
from steelyard.cli.failures import CliError, usage_error
from steelyard.cli.simulate_autoscaling import autoscaling

if TYPE_CHECKING:
    from rich.table import Table

    from steelyard.simulate.scaling import Scaled
    from steelyard.simulate.scorecard import Score, Standing

LOST_ABOVE = 1.02  # worse than the best by more than this: the cell is lost

simulate = typer.Typer(
    help="Run the platform's decisions on a virtual clock, against simulated replicas.", no_args_is_help=True
)


@simulate.callback()
def _root() -> None:
    """Run the platform's decisions on a virtual clock, against simulated replicas."""


simulate.command()(autoscaling)


@simulate.command()
def routing(
    traces: Annotated[
        Path | None, typer.Option("--traces", help="Folder of recorded traces (see docs/simulate.md); none: synthetic.")
    ] = None,
    trace: Annotated[list[str] | None, typer.Option("--trace", help="Only this trace; may be repeated.")] = None,
    replicas: Annotated[str, typer.Option("--replicas", help="Sizes of the fleet, comma-separated.")] = "8",
    policy: Annotated[list[str] | None, typer.Option("--policy", help="Only this policy; may be repeated.")] = None,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Load of each replica.")] = 0.7,
    share: Annotated[float, typer.Option("--share", help="Share of each trace's time, at most.")] = 0.1,
    requests: Annotated[int, typer.Option("--requests", help="Requests per replica, at most.")] = 100,
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each cell, pooled.")] = 1,
    model: Annotated[Path | None, typer.Option("--model", help="JSON file with the replica's parameters.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write plots and cells.jsonl into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line per cell and policy, then one of all.")] = False,
) -> None:
    """Compare routing policies: cache hits, time to first token, goodput, balance, per trace and fleet."""
    from rich.console import Console

    from steelyard.simulate.batch_speed import BatchSpeed
    from steelyard.simulate.matrix import Matrix, scores
    from steelyard.simulate.routing import POLICIES
    from steelyard.simulate.scorecard import standings
    from steelyard.simulate.traces.catalogue import available

    try:
        speed = BatchSpeed() if model is None else BatchSpeed.from_json(model)
        found = available(traces, seed=1)
        wanted = among(trace, list(found), "trace")
        matrix = Matrix(
            replicas=[int(part) for part in replicas.split(",")],
            policies=among(policy, list(POLICIES), "policy"),
            utilisation=utilisation,
            share=share,
            requests_per_replica=requests,
            seeds=range(1, seeds + 1),
        )
        all_scores: list[Score] = []
        for score in scores({name: found[name] for name in wanted}, matrix, speed, _told):
            all_scores.append(score)
            if as_json:
                print(json.dumps(score.as_json()), flush=True)
    except (ValueError, OSError) as error:
        raise usage_error(str(error)) from error
    standing = standings(all_scores)
    if out is not None:
        _write(all_scores, out)
    if as_json:
        print(json.dumps(_summary(standing)))
        return
    console = Console()
    console.print(_table(all_scores))
    for line in _lost(standing):
        console.print(line, highlight=False)


def _told(cell: Scaled) -> None:
    if sys.stderr.isatty():
        print(f"{cell.trace.name}: {len(cell.requests)} requests in {cell.duration_s:.0f} s", file=sys.stderr)


def _write(scores: list[Score], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.jsonl").write_text("".join(json.dumps(score.as_json()) + "\n" for score in scores))
    try:
        from steelyard.simulate.plots import draw

        draw(scores, folder)
    except ImportError as error:
        raise CliError(
            "Plots need matplotlib; cells.jsonl was written.", "pip install 'steelyard[simulate]'"
        ) from error


def _summary(standing: list[Standing]) -> dict[str, object]:
    """The last line: the worst of p99 TTFT and goodput beside the best policy of a cell, over all cells."""
    worst = max(standing, key=lambda one: one.worse, default=None)
    return {
        "cells": len(standing),
        "cells_lost": sum(1 for one in standing if one.worse > LOST_ABOVE),
        "worst_ttft_p99_vs_best": max((one.ttft for one in standing), default=None),
        "worst_goodput_vs_best": max((one.goodput for one in standing), default=None),
        "worst_cell": None if worst is None else f"{worst.trace} x {worst.replicas}: {_figure(worst)}",
        "worst_cell_vs_best": None if worst is None else worst.worse,
    }


def _figure(one: Standing) -> str:
    if one.ttft >= one.goodput:
        return f"p99 TTFT {one.ttft:.3f} × that of {one.ttft_best}"
    return f"goodput of {one.goodput_best} {one.goodput:.3f} × ours"


def _table(scores: list[Score]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("trace × replicas", no_wrap=True)
    for title in ("hit", "TTFT p50", "p99 s", "ITL ms", "good %", "max/mean", "µs"):
        table.add_column(title, justify="right", no_wrap=True)
    cell: tuple[str, int] | None = None
    for score in scores:
        if cell != (score.trace, score.replicas):
            cell = (score.trace, score.replicas)
            table.add_row(f"[bold]{score.trace} × {score.replicas}[/]")
        table.add_row(
            f"  {score.policy}",
            "-" if score.hit_of_ideal != score.hit_of_ideal else f"{score.hit_of_ideal:.2f}",
            f"{score.ttft_p50_s:.3f}",
            f"{score.ttft_p99_s:.3f}",
            f"{1000 * score.itl_p99_s:.0f}",
            f"{100 * score.goodput:.1f}",
            f"{score.max_over_mean:.2f}",
            f"{score.decision_us:.0f}",
        )
    return table


def _lost(standing: list[Standing]) -> list[str]:
    """The cells that model units lose, the worst first."""
    lost = sorted((one for one in standing if one.worse > LOST_ABOVE), key=lambda one: -one.worse)
    if not standing:
        return []
    return [
        f"\nModel units are within 2 % of the best in {len(standing) - len(lost)} of {len(standing)} cells.",
        *(f"  lost: {one.trace} × {one.replicas}: {_figure(one)}" for one in lost),
    ]
