"""Which policy chooses among a served entity's replicas: the one place that names them.

`table.py` asks for one chooser per served entity, since each keeps what it learnt of that entity's replicas.
"""

from __future__ import annotations

from random import Random

from steelyard.policy.expected_wait import ExpectedWait
from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Chooser, LeastInTurn, PowerOfTwoChoices, RoundRobin
from steelyard.policy.routing_choice import WeighOrCount
from steelyard.settings import Settings


class Choosers:
    """Makes choosers over one ledger. Raises ValueError for a policy that is none."""

    def __init__(self, settings: Settings, ledger: Ledger, rng: Random) -> None:
        if settings.routing not in {"model_units", "p2c", "round_robin"}:
            raise ValueError(f"STEELYARD_ROUTING={settings.routing!r} is none of model_units, p2c, round_robin.")
        self._policy = settings.routing
        self._routers = settings.routers
        self._ledger = ledger
        self._rng = rng

    def make(self) -> Chooser:
        ledger, rng = self._ledger, self._rng
        if self._policy == "round_robin":
            return RoundRobin(ledger)
        if self._policy == "p2c":
            return PowerOfTwoChoices(ledger, rng)
        return WeighOrCount(ExpectedWait(ledger, rng, routers=self._routers), LeastInTurn(ledger, rng))
