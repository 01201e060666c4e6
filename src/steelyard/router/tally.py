"""What each tenant's requests took, added up on the hot path until the usage feed takes it away.

Counted is what rate limits charge: a request that a replica was given and that did not fail on our side, with what its
last attempt took. A tally that has something in it stands in the list that it shares with all others, and so needs no
register: what still runs when its endpoint is deleted is counted too.
"""

from __future__ import annotations

from steelyard.contracts.usage import RequestUsage
from steelyard.router.budget import FORGIVEN


class Taken:
    """By one principal."""

    __slots__ = ("cached_tokens", "image_tokens", "input_tokens", "mmu", "output_tokens", "requests", "rows")

    def __init__(self) -> None:
        self.requests = 0
        self.rows = 0
        self.input_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.image_tokens = 0
        self.mmu = 0


class Tally:
    """Of one served entity. `filled` holds those that are not empty, of all entities."""

    __slots__ = ("_by_principal", "_filled", "endpoint", "entity")

    def __init__(self, endpoint: str, entity: str, filled: list[Tally]) -> None:
        self.endpoint = endpoint
        self.entity = entity
        self._by_principal: dict[str, Taken] = {}
        self._filled = filled

    def add(self, principal: str, status: int, usage: RequestUsage | None, mmu: int) -> None:
        """One request that was sent has ended."""
        if status in FORGIVEN:
            return
        taken = self._by_principal.get(principal)
        if taken is None:
            if not self._by_principal:
                self._filled.append(self)
            taken = self._by_principal[principal] = Taken()
        taken.requests += 1
        if usage is None:
            return
        taken.mmu += mmu
        if usage.rows:
            taken.rows += usage.rows
        if usage.prompt_tokens:
            taken.input_tokens += usage.prompt_tokens
            taken.cached_tokens += usage.cached_tokens or 0
            taken.output_tokens += usage.output_tokens or 0
        taken.image_tokens += usage.image_tokens

    def drain(self) -> dict[str, Taken]:
        """Take all of it away, by principal. The list is the caller's to empty."""
        taken, self._by_principal = self._by_principal, {}
        return taken
