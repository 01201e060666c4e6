"""Budgets per minute: how many requests, tokens and MU an endpoint, a user or a group may have.

**Inputs** The limits in force, who asks (user and groups), what the request is estimated to take, and the time; then
what it took.
**Parameters** `MAX_USERS` = 10,000: users whose buckets are remembered, per endpoint.
**Rules** All limits that apply must have room, or nothing is reserved and the error names the one that keeps the
request out longest and when to come back. A user's own limit replaces the one for every user; a group's is shared by
its members; a member of several groups needs room in each. What was estimated too high is given back where it was
taken as soon as the request is settled, what was too low is charged then: a limit holds for what was really used.
**Trade-offs** Output is reserved before it is known: a high estimate keeps others out until the request has ended, a
low one lets the limit be passed by the difference, once, since the debt counts in the minute that follows.
**Failure modes** With more than `MAX_USERS` users in a minute, the one who asked longest ago begins a new minute. An
amount above the limit itself never has room, and no time to come back.

The router has one `Limiter` per endpoint, and asks it before it lets a request wait or go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from steelyard.policy.token_bucket import Bucket
from steelyard.policy.units import MMU_PER_MU

MAX_USERS: Final = 10_000


class Kind(IntEnum):
    """What is counted. The order is that of `Amounts`, but for the last, which is a sum of two."""

    REQUESTS = 0
    INPUT_TOKENS = 1
    OUTPUT_TOKENS = 2
    MMU = 3
    TOKENS = 4  # of input and output


Amounts = tuple[int, int, int, int]  # requests, input tokens, output tokens, mmu; each ≥ 0
NOTHING: Final[Amounts] = (0, 0, 0, 0)


class Scope(StrEnum):
    ENDPOINT = "endpoint"  # all of its requests together
    USER = "user"
    GROUP = "group"  # its members together


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`principal`: whose; of a user limit empty for every user who has none of its own. Of `MMU` in milli-MU."""

    kind: Kind
    scope: Scope
    per_minute: int
    principal: str = ""

    def __str__(self) -> str:
        if self.kind is Kind.MMU:
            amount = f"{self.per_minute / MMU_PER_MU:,g} MU"
        else:
            amount = f"{self.per_minute:,} {self.kind.name.lower().replace('_', ' ')}"
        whose = {Scope.ENDPOINT: "of the endpoint", Scope.USER: "per user", Scope.GROUP: f"of group {self.principal!r}"}
        return f"limit of {amount} per minute {whose[self.scope]}"


class Spent:
    """Why nothing was reserved: `limit` has no room for `amount` before `retry_after_s` have passed (None: never)."""

    __slots__ = ("amount", "limit", "retry_after_s")

    def __init__(self, limit: RateLimit, amount: int, retry_after_s: float | None) -> None:
        self.limit = limit
        self.amount = amount
        self.retry_after_s = retry_after_s

    @property
    def reason(self) -> str:
        """For the client."""
        if self.amount <= self.limit.per_minute:
            return f"The {self.limit} is spent."
        amount = self.amount / MMU_PER_MU if self.limit.kind is Kind.MMU else self.amount
        return f"It alone may take {amount:,g}, which is above the {self.limit}."


BucketSource = Callable[[RateLimit, str, Bucket | None], Bucket]
"""Gives the bucket of a limit that is shared with others, and whose it is: the one before it, or another."""


class _Limited:
    """A limit and its bucket, of one user, group or endpoint."""

    __slots__ = ("bucket", "limit")

    def __init__(self, limit: RateLimit, bucket: Bucket) -> None:
        self.limit = limit
        self.bucket = bucket


class Reservation:
    """What one request has taken from all of its buckets, until it is settled."""

    __slots__ = ("_amounts", "_limited", "_settled", "_slots")

    def __init__(self, limited: list[_Limited], slots: list[int], amounts: Amounts) -> None:
        self._limited = limited
        self._slots = slots
        self._amounts = amounts
        self._settled = False

    def settle(self, used: Amounts, now_s: float) -> None:
        """It took `used`: give back what is left, charge what is missing. Once; later calls change nothing."""
        if self._settled:
            return
        self._settled = True
        for limited, slot in zip(self._limited, self._slots, strict=True):
            kind = limited.limit.kind
            left = _of(self._amounts, kind) - max(0, _of(used, kind))
            if left > 0:
                limited.bucket.room(now_s)
                limited.bucket.give_back(left, slot)
            elif left < 0:
                limited.bucket.take(-left, now_s)

    def cancel(self, now_s: float) -> None:
        """It was not let in after all."""
        self.settle(NOTHING, now_s)


class Limiter:
    """The limits of one endpoint. False when there are none. `source`: where others share them."""

    __slots__ = ("_by_group", "_by_user", "_endpoint", "_everyone", "_groups", "_source", "_users")

    def __init__(self, limits: Iterable[RateLimit] = (), source: BucketSource | None = None) -> None:
        self._source = source
        self._endpoint: list[_Limited] = []
        self._groups: dict[str, list[_Limited]] = {}
        self._users: OrderedDict[str, list[_Limited]] = OrderedDict()  # who asked longest ago first
        self._everyone: dict[Kind, RateLimit] = {}
        self._by_user: dict[str, dict[Kind, RateLimit]] = {}
        self.replace(limits)

    def __bool__(self) -> bool:
        return bool(self._endpoint or self._groups or self._everyone or self._by_user)

    @property
    def remembered(self) -> int:
        """Users that memory is held for."""
        return len(self._users)

    def replace(self, limits: Iterable[RateLimit]) -> None:
        """Put new limits in force. What was taken in the last minute still counts.

        Of two limits for the same the lower one holds. Raises ValueError for a limit below 1 or a group without a name.
        """
        chosen: dict[tuple[Scope, str, Kind], RateLimit] = {}
        for limit in limits:
            if limit.per_minute < 1:
                raise ValueError(f"A {limit} lets nothing through; it must be at least 1.")
            if limit.scope is Scope.GROUP and not limit.principal:
                raise ValueError("The limit of a group must name the group.")
            key = (limit.scope, limit.principal, limit.kind)
            known = chosen.get(key)
            if known is None or limit.per_minute < known.per_minute:
                chosen[key] = limit
        groups: dict[str, list[RateLimit]] = {}
        self._everyone, self._by_user = {}, {}
        for limit in chosen.values():
            if limit.scope is Scope.GROUP:
                groups.setdefault(limit.principal, []).append(limit)
            elif limit.scope is Scope.USER and limit.principal:
                self._by_user.setdefault(limit.principal, {})[limit.kind] = limit
            elif limit.scope is Scope.USER:
                self._everyone[limit.kind] = limit
        endpoint = [limit for limit in chosen.values() if limit.scope is Scope.ENDPOINT]
        self._endpoint = self._limited(endpoint, "", self._endpoint)
        self._groups = {name: self._limited(own, name, self._groups.get(name, [])) for name, own in groups.items()}
        for user, before in self._users.items():
            self._users[user] = self._limited(self._limits_of(user), user, before)

    def reserve(self, user: str, groups: Sequence[str], amounts: Amounts, now_s: float) -> Reservation | Spent:
        """Take `amounts` from all buckets that apply, or nothing from any."""
        limited = self._applying(user, groups)
        worst: Spent | None = None
        for one in limited:
            amount = _of(amounts, one.limit.kind)
            if one.bucket.ask(amount, now_s):
                continue
            spent = Spent(one.limit, amount, one.bucket.room_in_s(amount, now_s))
            if worst is None or _is_longer(spent, worst):
                worst = spent
        if worst is not None:
            return worst
        slots = [one.bucket.take(_of(amounts, one.limit.kind), now_s) for one in limited]
        return Reservation(limited, slots, amounts)

    def bucket(self, kind: Kind, scope: Scope, principal: str = "") -> Bucket | None:
        """The bucket in use for an endpoint, a group or a user, for those who share or show it."""
        if scope is Scope.ENDPOINT:
            found = self._endpoint
        else:
            found = (self._groups if scope is Scope.GROUP else self._users).get(principal, [])
        for one in found:
            if one.limit.kind is kind:
                return one.bucket
        return None

    def buckets(self) -> Iterator[Bucket]:
        """All that are in use."""
        for found in (self._endpoint, *self._groups.values(), *self._users.values()):
            for one in found:
                yield one.bucket

    def _applying(self, user: str, groups: Sequence[str]) -> list[_Limited]:
        limited = list(self._endpoint)
        if self._everyone or user in self._by_user:
            own = self._users.get(user)
            if own is None:
                own = self._users[user] = self._limited(self._limits_of(user), user, [])
                if len(self._users) > MAX_USERS:
                    self._users.popitem(last=False)
            else:
                self._users.move_to_end(user)
            limited += own
        if self._groups:
            for group in dict.fromkeys(groups):
                limited += self._groups.get(group, [])
        return limited

    def _limits_of(self, user: str) -> list[RateLimit]:
        return list({**self._everyone, **self._by_user.get(user, {})}.values())

    def _limited(self, limits: list[RateLimit], whose: str, before: list[_Limited]) -> list[_Limited]:
        """Each limit with its bucket, the one that counted its kind before if there is one."""
        buckets = {one.limit.kind: one.bucket for one in before}
        found = []
        for limit in limits:
            bucket = buckets.get(limit.kind)
            if bucket is None or bucket.limit != limit.per_minute:
                if self._source is not None:
                    bucket = self._source(limit, whose, bucket)
                elif bucket is None:
                    bucket = Bucket(limit.per_minute)
                bucket.limit = limit.per_minute
            found.append(_Limited(limit, bucket))
        return found


def _of(amounts: Amounts, kind: Kind) -> int:
    if kind is Kind.TOKENS:
        return amounts[Kind.INPUT_TOKENS] + amounts[Kind.OUTPUT_TOKENS]
    return amounts[kind]


def _is_longer(one: Spent, other: Spent) -> bool:
    if other.retry_after_s is None:
        return False
    return one.retry_after_s is None or one.retry_after_s > other.retry_after_s
