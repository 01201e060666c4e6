"""Whether two answers are the same: structure, labels, integers and strings exactly, floats within a tolerance.

The tolerance is the case's. A missing number is null on both sides. Used by tests only.
"""

from __future__ import annotations

import math
from typing import Any

from support.zoo.case import Case


def differences(case: Case, expected: list[Any], answers: list[Any], limit: int = 5) -> list[str]:
    """The first few places where the answers differ from what is expected; none when they are equal."""
    if len(expected) != len(answers):
        return [f"{len(answers)} answers for {len(expected)} rows"]
    found: list[str] = []
    for number, (own, served) in enumerate(zip(expected, answers, strict=True)):
        found += _differences(case, own, served, f"row {number}")
        if len(found) >= limit:
            break
    return found[:limit]


def _differences(case: Case, own: Any, served: Any, where: str) -> list[str]:
    if type(own) is not type(served):
        return [f"{where}: {own!r} became {served!r}"]
    if isinstance(own, list):
        if len(own) != len(served):
            return [f"{where}: {len(served)} values instead of {len(own)}"]
        pairs = [(f"{where}[{place}]", one, other) for place, (one, other) in enumerate(zip(own, served, strict=True))]
    elif isinstance(own, dict):
        if list(own) != list(served):
            return [f"{where}: the fields {list(own)} became {list(served)}"]
        pairs = [(f"{where}.{name}", value, served[name]) for name, value in own.items()]
    elif isinstance(own, float):
        same = math.isclose(own, served, rel_tol=case.rtol, abs_tol=case.atol)
        return [] if same else [f"{where}: {own!r} became {served!r}"]
    else:
        return [] if own == served else [f"{where}: {own!r} became {served!r}"]
    return [text for name, one, other in pairs for text in _differences(case, one, other, name)]
