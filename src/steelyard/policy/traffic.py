"""Which served entity of an endpoint gets a request: the traffic split.

**Inputs** Percentages (whole numbers ≥ 0, meant to sum to 100) and one random number in [0, 1).
**Parameters** None.
**Trade-offs** Each request is drawn on its own: shares hold in the long run, not within a short burst.
**Failure modes** Percentages that do not sum to 100 are taken as proportions; all zero means that nobody serves (None).
"""

from __future__ import annotations

from collections.abc import Sequence


def pick_by_share(percentages: Sequence[int], draw: float) -> int | None:
    """Index of the entity that `draw` falls on, or None when no entity takes traffic."""
    total = sum(percentages)
    if total <= 0:
        return None
    point = draw * total
    for index, share in enumerate(percentages):
        if point < share:
            return index
        point -= share
    return max(index for index, share in enumerate(percentages) if share > 0)  # rounding at draw ≈ 1
