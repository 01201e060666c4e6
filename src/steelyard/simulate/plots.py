"""Scores as pictures: one PNG for each figure, a group of bars for each cell, a colour for each policy.

Needs matplotlib (the extra `simulate`), so that only who wants pictures imports it: the CLI, given a folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot

from steelyard.simulate.scorecard import Score

# attribute of a score: (title, whether the axis is logarithmic)
FIGURES = {
    "ttft_p99_s": ("Time to first token, p99 (s)", True),
    "ttft_p50_s": ("Time to first token, p50 (s)", True),
    "goodput": ("Goodput: share of requests within target", False),
    "hit_of_ideal": ("Cached tokens ÷ those of an infinite shared cache", False),
    "max_over_mean": ("Work of the busiest replica ÷ mean", False),
}


def draw(scores: Sequence[Score], folder: Path) -> list[Path]:
    """Write the figures and return their paths."""
    pyplot.switch_backend("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    cells = list(dict.fromkeys((score.trace, score.replicas) for score in scores))
    policies = list(dict.fromkeys(score.policy for score in scores))
    by_cell = {(score.trace, score.replicas, score.policy): score for score in scores}
    written = []
    for name, (title, logarithmic) in FIGURES.items():
        shown = [cell for cell in cells if any(_known(by_cell.get((*cell, policy)), name) for policy in policies)]
        if not shown:
            continue
        figure, axes = pyplot.subplots(figsize=(max(6.0, 1.2 * len(shown) + 2), 4.5), layout="constrained")
        width = 0.8 / len(policies)
        for place, policy in enumerate(policies):
            heights = [_value(by_cell.get((*cell, policy)), name) for cell in shown]
            middles = [at + (place - (len(policies) - 1) / 2) * width for at in range(len(shown))]
            axes.bar(middles, heights, width, label=policy)
        axes.set_xticks(range(len(shown)), [f"{trace}\n× {replicas}" for trace, replicas in shown], rotation=30)
        axes.set_title(title)
        if logarithmic:
            axes.set_yscale("log")
        axes.legend(fontsize="small")
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        written.append(path)
    return written


def _value(score: Score | None, name: str) -> float:
    return float("nan") if score is None else float(getattr(score, name))


def _known(score: Score | None, name: str) -> bool:
    return math.isfinite(_value(score, name))
