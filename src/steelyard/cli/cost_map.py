"""What `steelyard calibrate` shows of a result: tables, sentences, and a picture of cost by size.

Pure but for `draw`, which writes a PNG with matplotlib, if that is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.policy.units import Features, LinearCost, Term

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]
_UNITS = {  # how many of a term make a figure that people can read, and what they are
    Term.REQUEST: (1, "request"),
    Term.INPUT: (1000, "input tokens"),
    Term.CACHED: (1000, "cached tokens"),
    Term.OUTPUT: (1000, "output tokens"),
    Term.IMAGE: (1000, "image tokens"),
    Term.ROW: (1000, "rows"),
    Term.ATTENTION: (1_000_000, "pairs of prompt tokens"),
    Term.CONTEXT: (1_000_000, "pairs of an output token and one before it"),
}
_GRID = 60  # points per side of the map


def cost_of(result: Json) -> LinearCost:
    coefficients = result.get("coefficients") or {}
    return LinearCost({term: float(coefficients[term.value]) for term in Term if term.value in coefficients})


def cost_table(result: Json) -> Table:
    """Each term's cost."""
    table = _table("COST OF", "MU", "REPLICA TIME")
    cost = cost_of(result)
    for term, (count, what) in _UNITS.items():
        if term in cost.coefficients:
            model_units = count * cost.coefficients[term]
            table.add_row(f"{count:,} {what}" if count > 1 else what, f"{model_units:,.3g}", _time(model_units / 1000))
    return table


def windows_table(result: Json) -> Table:
    """Each window: how long the replica took, and how long it should have by the fitted cost."""
    table = _table("MIX", "AT ONCE", "MEASURED", "PREDICTED", "ERROR", "")
    for window in result.get("windows") or []:
        measured, predicted = float(window["seconds"]), float(window["predicted_s"])
        table.add_row(
            str(window["mix"]),
            str(window["concurrency"]),
            f"{measured:.2f} s",
            f"{predicted:.2f} s",
            f"{predicted / measured - 1:+.1%}" if measured else "–",
            "held out" if window["held_out"] else "",
        )
    return table


def summary(result: Json) -> list[str]:
    """Sentences, most important first."""
    median, p95 = result.get("held_out_median_error"), result.get("held_out_p95_error")
    lines = [
        "No mix was held out; the error is unknown."
        if median is None
        else f"Mixes that it had not seen are predicted to within {median:.1%} (median) and {p95:.1%} (p95)."
    ]
    target = ", ".join(
        f"{words} {_time(target_s)}"
        for key, words in (("first_token_s", "first token"), ("per_token_s", "per token"), ("whole_s", "whole answer"))
        if (target_s := (result.get("target") or {}).get(key)) is not None
    )
    rate = f"Highest rate at {result['concurrency']} requests at once"
    lines.append(f"{rate} (target: {target})." if target else f"{rate}.")
    if not result.get("complete"):
        lines.append("The time was up before all mixes had run.")
    largest = ", ".join(f"{size:,} {name.replace('_', ' ')}" for name, size in (result.get("largest") or {}).items())
    if largest:
        lines.append(f"Tried up to {largest}; beyond, costs are extrapolated.")
    return [*lines, *map(str, result.get("notes") or [])]


def draw(result: Json, path: Path) -> bool:
    """False when matplotlib is not installed. Raises OSError."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_costs(figure, left, result)
    _draw_windows(right, result)
    figure.suptitle(f"{result['endpoint']} / {result['served_entity']} on {result['hardware']['processor']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, format="png")
    return True


def _draw_costs(figure: Any, axes: Any, result: Json) -> None:
    """A heat map over prompt and output of a model that generates, a line over rows of any other."""
    cost, largest = cost_of(result), result.get("largest") or {}
    if "output_tokens" in largest:
        inputs = _spaced(largest["input_tokens"])
        outputs = _spaced(largest["output_tokens"])
        values = [[cost.mmu(Features(input_tokens=i, output_tokens=o)) / 1000 for i in inputs] for o in outputs]
        mesh = axes.pcolormesh(inputs, outputs, values, shading="gouraud", cmap="viridis")
        contours = axes.contour(inputs, outputs, values, colors="white", linewidths=0.8)
        axes.clabel(contours, fmt="%g")
        figure.colorbar(mesh, ax=axes, label="MU per request")
        axes.set(xlabel="input tokens", ylabel="output tokens", title="Cost of a request")
        return
    rows = _spaced(largest.get("rows", 1))
    axes.plot(rows, [cost.mmu(Features(rows=count)) / 1000 for count in rows])
    axes.set(xlabel="rows", ylabel="MU per request", title="Cost of a request", ylim=(0, None))


def _draw_windows(axes: Any, result: Json) -> None:
    for held_out, label, marker in ((False, "fitted", "o"), (True, "held out", "x")):
        windows = [window for window in result.get("windows") or [] if window["held_out"] is held_out]
        measured = [float(window["seconds"]) for window in windows]
        axes.scatter(measured, [float(window["predicted_s"]) for window in windows], label=label, marker=marker)
    longest = max((float(window["seconds"]) for window in result.get("windows") or []), default=1.0)
    axes.plot([0, 1.1 * longest], [0, 1.1 * longest], color="grey", linewidth=0.8)
    axes.set(xlabel="seconds measured", ylabel="seconds predicted", title="Windows")
    axes.legend()


def _spaced(most: float) -> list[float]:
    return [1 + (most - 1) * step / (_GRID - 1) for step in range(_GRID)]


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, no_wrap=True, justify="right" if place > 0 and column else "left")
    return table


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
