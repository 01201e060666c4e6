"""How long an answer will be, before it is known: a quantile of what the same tenant's answers were lately.

**Inputs** The output tokens of each finished request, by tenant; the `max_tokens` of one that arrives.
**Parameters** `QUANTILE` = 0.7: a little above the middle, since a request charged too little is noticed by others.
`HALF_LIFE` = 500 answers after which an answer counts half (of its tenant, and of the endpoint). `PRIOR` = 20 answers'
weight of the whole endpoint in a tenant's estimate. `MOST_TENANTS` = 1,000; the one not heard of for longest is
forgotten. Lengths fall into `PER_OCTAVE` = 4 bins per doubling, 19 % wide, and are interpolated within.
**Trade-offs** Decay counts answers, not seconds: a quiet tenant keeps what is known of it. One number per tenant is
blind to what was asked; the ledger corrects the charge while tokens stream.
**Failure modes** Answers cut off by `max_tokens` count as what came, so that estimates lean low where clients cap
tightly and then stop doing so. Before anything was learnt the estimate is `UNKNOWN_TOKENS`, or `max_tokens` if less.

One `OutputLengths` per endpoint, owned by each router: it charges by the estimate and tells what came of it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

QUANTILE: Final = 0.7
HALF_LIFE: Final = 500.0
PRIOR: Final = 20.0
MOST_TENANTS: Final = 1000
PER_OCTAVE: Final = 4
UNKNOWN_TOKENS: Final = 256.0
_BINS: Final = 20 * PER_OCTAVE + 1  # up to a million tokens; the first is for no token at all
_RESCALE: Final = 1e100


class _Histogram:
    """Weights per bin. Instead of shrinking all old ones at each answer, each new one weighs a little more."""

    __slots__ = ("next_weight", "total", "weights")

    def __init__(self) -> None:
        self.weights: list[float] = [0.0] * _BINS
        self.total = 0.0
        self.next_weight = 1.0

    def add(self, tokens: float, growth: float) -> None:
        self.weights[_bin_of(tokens)] += self.next_weight
        self.total += self.next_weight
        self.next_weight *= growth
        if self.next_weight > _RESCALE:
            self.weights = [weight / self.next_weight for weight in self.weights]
            self.total /= self.next_weight
            self.next_weight = 1.0

    @property
    def answers(self) -> float:
        """How many answers it is worth, the newest counting 1."""
        return self.total / self.next_weight


class _Tenant:
    __slots__ = ("histogram", "learnt", "quantile")

    def __init__(self) -> None:
        self.histogram = _Histogram()
        self.learnt = 0
        self.quantile: float | None = None  # None: to be computed


class OutputLengths:
    """What is known of one endpoint's answers."""

    def __init__(
        self, *, quantile: float = QUANTILE, half_life: float = HALF_LIFE, most_tenants: int = MOST_TENANTS
    ) -> None:
        """Raises ValueError for a quantile that is none, or for no room."""
        if not 0 < quantile < 1 or half_life <= 0 or most_tenants < 1:
            raise ValueError("A quantile lies between 0 and 1; half-life and tenants are above 0.")
        self._quantile = quantile
        self._growth = 2.0 ** (1.0 / half_life)
        self._most_tenants = most_tenants
        self._all = _Tenant()
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()  # the one heard of last stands last

    @property
    def tenants(self) -> int:
        return len(self._tenants)

    def learn(self, tenant: str, output_tokens: float) -> None:
        """An answer was finished, or ended for a reason that is the model's own (not the client's)."""
        known = self._tenants.get(tenant)
        if known is None:
            if len(self._tenants) >= self._most_tenants:
                self._tenants.popitem(last=False)
            known = self._tenants[tenant] = _Tenant()
        else:
            self._tenants.move_to_end(tenant)
        for one in (known, self._all):
            one.histogram.add(output_tokens, self._growth)
            one.learnt += 1
            if _is_due(one.learnt):
                one.quantile = None

    def estimate(self, tenant: str, max_tokens: float | None) -> float:
        """Output tokens to charge for. `max_tokens` None: the client set no limit."""
        expected = self._expected(tenant)
        return expected if max_tokens is None or expected < max_tokens else max_tokens

    def _expected(self, tenant: str) -> float:
        if self._all.learnt == 0:
            return UNKNOWN_TOKENS
        if self._all.quantile is None:
            self._all.quantile = _quantile_of(self._all.histogram, None, self._quantile)
        known = self._tenants.get(tenant)
        if known is None:
            return self._all.quantile
        if known.quantile is None:
            known.quantile = _quantile_of(known.histogram, self._all.histogram, self._quantile)
        return known.quantile


def _is_due(learnt: int) -> bool:
    """Every answer at first, later one in 16: a quantile costs more than an answer changes."""
    return learnt < 32 or learnt % 16 == 0


def _bin_of(tokens: float) -> int:
    if tokens < 1:
        return 0
    return min(_BINS - 1, 1 + int(PER_OCTAVE * math.log2(tokens) + 1e-9))


def _lower(place: int) -> float:
    return 0.0 if place == 0 else 2.0 ** ((place - 1) / PER_OCTAVE)


def _quantile_of(own: _Histogram, prior: _Histogram | None, quantile: float) -> float:
    """Of the own answers and `PRIOR` more that fall as the prior's do."""
    own_scale = 1.0 / own.next_weight
    prior_scale = 0.0 if prior is None else min(PRIOR, prior.answers) / prior.total
    needed = quantile * (own.answers + (0.0 if prior is None else min(PRIOR, prior.answers)))
    place, weight = 0, 0.0
    for place in range(_BINS):
        weight = own.weights[place] * own_scale
        if prior is not None:
            weight += prior.weights[place] * prior_scale
        if weight >= needed:
            break
        needed -= weight
    share = needed / weight if weight > 0 else 0.0
    low, high = _lower(place), _lower(place + 1)
    return low + min(1.0, share) * (high - low)
