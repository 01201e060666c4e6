"""The decision log: all that the horizontal axis of an entity was told and decided, so that it can be decided again.

One JSON object per line. A `begin` holds the limits and the whole state; each `decision` after it the samples since the
one before, the arguments, and what came of them. Control writes it, `steelyard autoscaling replay` and tests read it.
Pure text to and from values: the file is others' business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import Decision, Horizontal, Limits


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one `Horizontal.decide`, and the samples that were observed before it."""

    now_s: float
    target: float
    readiness_s: float | None
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A decision as it was recorded (`wall_ms`: when), and as it came out again."""

    subject: str
    wall_ms: int
    recorded: Decision
    again: Decision

    @property
    def same(self) -> bool:
        return self.recorded == self.again


def begin_line(subject: str, horizontal: Horizontal) -> str:
    """Before the first decision, and whenever the limits have changed or another file begins."""
    entry = {"kind": "begin", "of": subject, "limits": asdict(horizontal.limits), "state": horizontal.state()}
    return json.dumps(entry, allow_nan=False)


def decision_line(subject: str, call: Call, decision: Decision, wall_ms: int) -> str:
    entry = {
        "kind": "decision",
        "of": subject,
        "wall_ms": wall_ms,
        "replicas": decision.replicas,
        "reason": decision.reason.name,
        "numbers": decision.numbers,
        "now_s": call.now_s,
        "target": call.target,
        "readiness_s": call.readiness_s,
        "samples": [asdict(sample) for sample in call.samples],
    }
    return json.dumps(entry, allow_nan=False)


def replay(lines: Iterable[str]) -> list[Replayed]:
    """Decides everything again. Decisions of an entity before its first `begin` are passed over: the oldest lines may
    have been cut off. A line that ends within is of a control that was killed as it wrote: whoever came after it began
    anew. Raises ValueError for a line that is no entry, with its number."""
    axes: dict[str, Horizontal] = {}
    found: list[Replayed] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            if number == 1 or not line.startswith('{"kind"'):
                raise ValueError(f"Line {number} is no entry of a decision log.") from error
            axes.clear()
            continue
        try:
            if entry["kind"] == "begin":
                axes[entry["of"]] = Horizontal(Limits(**entry["limits"]), entry["state"])
            elif entry["of"] in axes:
                found.append(_decide_again(entry, axes[entry["of"]]))
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            raise ValueError(f"Line {number} is no entry of a decision log.") from error
    return found


def _decide_again(entry: dict[str, Any], axis: Horizontal) -> Replayed:
    for sample in entry["samples"]:
        axis.observe(Sample(**sample))
    again = axis.decide(entry["now_s"], entry["target"], entry["readiness_s"])
    reason = next(item for item in type(again.reason) if item.name == entry["reason"])
    recorded = Decision(entry["replicas"], reason, entry["numbers"])
    return Replayed(entry["of"], entry["wall_ms"], recorded, again)
