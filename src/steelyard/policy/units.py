"""Model units: what a request costs one replica, as a function of what can be counted about it.

1,000 MU are one second of one replica working at the highest rate at which it still meets its latency target, so a
replica works off 1,000 MU/s by construction. Amounts that are charged, queued and settled are whole **milli-MU**
(`_mmu`, a microsecond of replica time), so that sums are exact and a cheap classic request does not weigh nothing.

**Inputs** `Features` of a request: tokens to compute, tokens in a prefix cache, output tokens, image tokens, rows.
**Parameters** One coefficient ≥ 0 per `Term`, in MU per unit of the term; found by calibration (`cost_fit.py`).
**Trade-offs** Linear in its terms, so that it can be fitted, explained and evaluated in a microsecond. Two terms are
convex in the tokens: `ATTENTION` (prefill looks back at all that came before) and `CONTEXT` (each step of decode does);
a fit uses them only where they predict held-out mixes better.
**Failure modes** An uncalibrated model has a guess (`uncertain`), which weighs all requests alike per token or row.
Features that cannot be known are estimates; the settled cost corrects them, and the residual is what drift watches.

The router charges by it, the simulator and the calibration evaluate it. It reads no clock and does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

MMU_PER_MU: Final = 1000
CAPACITY_MMU_PER_S: Final = 1_000_000  # of every replica


class Features:
    """What can be counted of one request. Floats, since most are estimates before the request has run."""

    __slots__ = ("cached_tokens", "image_tokens", "input_tokens", "output_tokens", "rows")

    def __init__(
        self,
        *,
        input_tokens: float = 0.0,
        cached_tokens: float = 0.0,
        output_tokens: float = 0.0,
        image_tokens: float = 0.0,
        rows: float = 0.0,
    ) -> None:
        self.input_tokens = input_tokens  # of text, to be computed: without the cached ones
        self.cached_tokens = cached_tokens  # of the prompt, found in the replica's prefix cache
        self.output_tokens = output_tokens
        self.image_tokens = image_tokens
        self.rows = rows  # of a classic model's input

    def __repr__(self) -> str:
        names = ("input_tokens", "cached_tokens", "output_tokens", "image_tokens", "rows")
        return f"Features({', '.join(f'{name}={getattr(self, name):g}' for name in names)})"


class Term(StrEnum):
    """What a coefficient multiplies."""

    REQUEST = "request"  # 1
    INPUT = "input"
    CACHED = "cached"
    OUTPUT = "output"
    IMAGE = "image"
    ROW = "row"
    ATTENTION = "attention"  # pairs of a computed token and one before it: computed × (cached + computed / 2)
    CONTEXT = "context"  # pairs of an output token and one before it: output × (prompt + output / 2)


TERMS: Final = tuple(Term)


def term_values(features: Features) -> tuple[float, ...]:
    """The terms of a request, in the order of `TERMS`."""
    computed = features.input_tokens + features.image_tokens
    cached = features.cached_tokens
    output = features.output_tokens
    return (
        1.0,
        features.input_tokens,
        cached,
        output,
        features.image_tokens,
        features.rows,
        computed * (cached + computed / 2),
        output * (cached + computed + output / 2),
    )


class CostModel(Protocol):
    """The seam of cost functions: milli-MU of a request, a whole number ≥ 0. Whatever prices is a pure function."""

    def mmu(self, features: Features) -> int: ...


class LinearCost:
    """Σ coefficient × term. `uncertainty` is the relative error of a typical prediction (0.1 = 10 %); None: unknown."""

    __slots__ = ("_weights", "coefficients", "uncertainty")

    def __init__(self, coefficients: Mapping[Term, float], uncertainty: float | None = None) -> None:
        """`coefficients` in MU. Raises ValueError for a negative one."""
        for term, value in coefficients.items():
            if not value >= 0:
                raise ValueError(f"The coefficient of {term.value!r} is {value}; none may be negative.")
        self.coefficients = dict(coefficients)
        self.uncertainty = uncertainty
        self._weights = tuple(MMU_PER_MU * coefficients.get(term, 0.0) for term in TERMS)

    def mmu(self, features: Features) -> int:
        total = 0.0
        for weight, value in zip(self._weights, term_values(features), strict=True):
            total += weight * value
        return max(1, int(total + 0.5))


# Until a model is calibrated: tokens in the proportion that most decoders show, and a row as much as a request.
GUESS: Final = LinearCost({
    Term.REQUEST: 1.0,
    Term.INPUT: 0.1,
    Term.CACHED: 0.005,
    Term.OUTPUT: 2.0,
    Term.IMAGE: 0.1,
    Term.ROW: 0.01,
})  # fmt: skip
