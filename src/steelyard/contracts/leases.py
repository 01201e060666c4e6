"""What routers and control tell each other about the rate limits that several routers share.

A router posts a `LeaseReport` to `/internal/leases` on control's socket a few times a second, and gets a `LeaseAnswer`.
Only limits that a router makes much use of, or was granted a share of, are in it; of every other one it may take its
even part. `policy/lease_holder.py` writes the reports, `policy/lease_book.py` the answers.
"""

from __future__ import annotations

import msgspec


class LimitKey(msgspec.Struct, frozen=True, array_like=True):
    """One limit. A changed amount makes another limit of it."""

    endpoint: str
    kind: int  # as in policy/rate_limits.py
    scope: str
    principal: str  # the user or the group; empty for the endpoint
    per_minute: int


class LeaseUse(msgspec.Struct, frozen=True, array_like=True):
    """How a router fares with its share of one limit."""

    key: LimitKey
    confirms: int  # number of the last grant that it follows
    share: int  # the most that it may have taken in a minute from now on, without another grant
    taken: int  # in the last minute
    taken_total: int  # ever
    demand: float  # wanted per minute, what was refused included
    need: int  # the largest amount that was refused of late; 0: none was


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    router: int  # its place, from 0
    began: int  # tells its lives apart: a later one has a higher number
    number: int  # rises with every report of one life
    joined: bool  # it may take its even part of limits that are not in its reports; False: nothing
    whole: bool  # all that it has a share of is in `uses`
    uses: list[LeaseUse] = []


class LeaseGrant(msgspec.Struct, frozen=True, array_like=True):
    """A router's share from now on, and what the others have not taken of theirs."""

    key: LimitKey
    number: int
    share: int
    elsewhere: int


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    joined: bool  # from now on it may take its even part of limits that it was told nothing of
    whole: bool = False  # the next report must be
    grants: list[LeaseGrant] = []
