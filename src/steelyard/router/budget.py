"""Rate limits at the router: read from the snapshot, what a request reserves, and what it is charged in the end.

The table reads an endpoint's limits, the dispatcher reserves before a request may wait or go, the exchange settles when
it ends. `policy.rate_limits` decides. An endpoint without limits has no limiter, and nothing here is called for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from steelyard.contracts.snapshot import RateLimitView
from steelyard.contracts.usage import RequestUsage
from steelyard.policy.rate_limits import Kind, Limiter, RateLimit, Reservation, Scope, Spent
from steelyard.policy.routing import Ask
from steelyard.policy.units import MMU_PER_MU

_SCOPES: Final = {
    "endpoint": Scope.ENDPOINT,
    "user": Scope.USER,
    "service_principal": Scope.USER,
    "user_group": Scope.GROUP,
}
FORGIVEN: Final = (502, 503)  # it failed on our side, and whoever asked is not charged for that


def read_limits(views: Iterable[RateLimitView]) -> list[RateLimit]:
    """Raises ValueError for a limit that makes no sense."""
    limits: list[RateLimit] = []
    for view in views:
        scope = _SCOPES[view.key]
        principal = view.principal or ""
        if scope is Scope.GROUP and not principal:
            raise ValueError("The limit of a group must name the group.")
        for kind, amount in (
            (Kind.REQUESTS, view.calls),
            (Kind.TOKENS, view.tokens),
            (Kind.INPUT_TOKENS, view.input_tokens),
            (Kind.OUTPUT_TOKENS, view.output_tokens),
            (Kind.MMU, None if view.model_units is None else view.model_units * MMU_PER_MU),
        ):
            if amount is None:
                continue
            if amount < 1:
                raise ValueError(f"A limit of {amount} lets nothing through; it must be at least 1.")
            limits.append(RateLimit(kind, scope, amount, principal))
    return limits


class Budget:
    """What one request has reserved of its limits."""

    __slots__ = ("_reservation",)

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation

    def end(self, status: int, sent: bool, usage: RequestUsage | None, mmu: int, now_s: float) -> None:
        """Charge it for what it took (None: the call); nothing if it was never `sent`, or failed on our side."""
        if not sent or status in FORGIVEN:
            self._reservation.cancel(now_s)
        elif usage is None:
            self._reservation.settle((1, 0, 0, 0), now_s)
        else:
            input_tokens = usage.prompt_tokens + usage.image_tokens
            self._reservation.settle((1, input_tokens, usage.output_tokens or 0, mmu), now_s)


def reserve(limiter: Limiter, principal: str, groups: Sequence[str], ask: Ask, now_s: float) -> Budget | Spent:
    """Take what the request is thought to need, or learn which limit does not allow it."""
    features = ask.features
    amounts = (1, ceil(features.input_tokens + features.image_tokens), ceil(features.output_tokens), ask.mmu)
    outcome = limiter.reserve(principal, groups, amounts, now_s)
    return outcome if isinstance(outcome, Spent) else Budget(outcome)
