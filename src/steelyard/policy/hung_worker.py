"""Which worker process hangs, so that it is to be replaced: one whose calls nobody waits for any more, yet last.

**Inputs** What runs in the worker: of each call since when one of its requests is of no use to anybody (its deadline
has passed, or its client has gone), when the worker was last heard on it, and whether the worker has read it at all.
The usual time of the model's calls; since when the watch has gone on without a gap; the time.
**Parameters** A call is overdue after `GRACE_S` = 2 s, or `USUAL` = 3 times what a call usually takes, whichever is
more. Where that is not known, as in a worker that has answered nothing since it started, it is `UNPROVEN_S` = 20 s:
models that load something at their first call must get to its end. What is usual is the median of `WINDOW` = 31 calls
that were answered, so that neither a slow first call nor one that hung moves it.
**Trade-offs** A worker hangs only when all that runs in it is overdue, or waits unread behind what is. A call that is
wanted and was read is never a sign of it, however slow it is: so a hung call beside calls that are answered keeps its
lane until they pause. Requests that shared an overdue call are lost with it; who acts on the verdict tries them again.
**Failure modes** A model whose every call outlasts its deadline several times is replaced again and again; nobody
got its answers. If the watch itself was held up (the machine slept), the time before counts for nothing.

`runtimes/hung_watch.py` asks it and acts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

GRACE_S = 2.0
USUAL = 3.0
UNPROVEN_S = 20.0
WINDOW = 31


@dataclass(frozen=True, slots=True)
class RunningCall:
    """`unwanted_s`: since when the first of its unanswered requests is unwanted; None while all are wanted.
    `heard_s`: when it was sent, or the worker last sent a part of its answer. `read`: by the worker, wholly."""

    unwanted_s: float | None
    heard_s: float
    read: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """`overdue`: how many of the worker's calls are. `hung`: it is to be replaced, for this reason."""

    overdue: int
    hung: bool
    reason: str


def grace_s(usual_s: float | None) -> float:
    """For how long an unwanted call may go on."""
    return UNPROVEN_S if usual_s is None else max(GRACE_S, USUAL * usual_s)


def judge(calls: Sequence[RunningCall], usual_s: float | None, watched_s: float, now_s: float) -> Verdict:
    """Of one worker. `watched_s`: since when the watch has looked regularly."""
    patience_s = grace_s(usual_s)
    overdue, unread, wanted = 0, 0, 0
    for call in calls:
        quiet_s = max(call.heard_s, watched_s)
        if call.unwanted_s is not None and now_s - max(call.unwanted_s, quiet_s) > patience_s:
            overdue += 1
        elif not call.read and now_s - quiet_s > patience_s:
            unread += 1
        else:
            wanted += 1
    if not overdue:
        return Verdict(0, False, "nothing is overdue")
    if wanted:
        return Verdict(overdue, False, f"{overdue} of {len(calls)} calls overdue, but {wanted} may yet be answered")
    behind = f", and {unread} waited unread" if unread else ""
    told = "1 call" if overdue == 1 else f"{overdue} calls"
    return Verdict(
        overdue, True, f"{told} went on for {patience_s:.1f} s after the deadline or the client's end{behind}"
    )


class UsualCall:
    """The median of the last calls that were answered."""

    def __init__(self) -> None:
        self._walls_s: deque[float] = deque(maxlen=WINDOW)

    def observe(self, wall_s: float) -> None:
        self._walls_s.append(wall_s)

    @property
    def usual_s(self) -> float | None:
        """None before the first."""
        walls_s = list(self._walls_s)
        return median(walls_s) if walls_s else None
