"""Negative marks on a replica: "do not send it new requests for a moment". Every mark expires by itself.

**Inputs** What happened (`reason`) and when (`now_s`).
**Parameters** `lease_s` of a first mark; it doubles with each mark in a row up to `MAX_LEASE_S` = 5 s, and starts over
when the replica answers.
**Trade-offs** A short lease costs a failed attempt now and then (which goes elsewhere unharmed); a long one keeps a
recovered replica idle.
**Failure modes** None that lasts: a mark cannot outlive its lease, whatever event is lost. Marks never touch load.

The router marks after a failed connection or a draining reply; routing reads.
"""

from __future__ import annotations

from typing import Final

CONNECT_LEASE_S: Final = 1.0  # refused or unreachable: it is down
LOST_LEASE_S: Final = 0.25  # a connection died: a new attempt will tell whether the replica did
DRAINING_LEASE_S: Final = 2.0  # it says that it is about to go
MAX_LEASE_S: Final = 5.0
_MAX_DOUBLINGS: Final = 5


class Mark:
    """The mark of one replica; active while `now_s < until_s`."""

    __slots__ = ("_in_a_row", "reason", "until_s")

    def __init__(self) -> None:
        self.until_s = 0.0
        self.reason = ""
        self._in_a_row = 0

    def put(self, now_s: float, lease_s: float, reason: str) -> None:
        """Mark from now on; never shortens a mark that lasts longer."""
        if now_s >= self.until_s:  # a burst of failures at once is one event
            self._in_a_row += 1
        lease_s = min(MAX_LEASE_S, lease_s * 2 ** min(self._in_a_row - 1, _MAX_DOUBLINGS))
        self.until_s = max(self.until_s, now_s + lease_s)
        self.reason = reason

    def answered(self) -> None:
        """The replica answered: the next mark starts with a short lease again."""
        self._in_a_row = 0

    def is_active(self, now_s: float) -> bool:
        return now_s < self.until_s
