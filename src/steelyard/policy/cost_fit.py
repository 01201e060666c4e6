"""The cost of a request, fitted from what a saturated replica got done: observations in, a `LinearCost` out.

What an MU is, as measured: let a replica hold as many requests of a mix as it can while its latency targets hold (a
closed loop, so that it is never short of work). In a window of T seconds it then works off 1,000 · T MU, *whatever* it
did in it; a request's cost is the part of that time which its tokens or rows explain. So each window is one equation:

    Σ over terms of coefficient × (what the window got done of the term) = 1,000 MU/s × T

A batching engine computes many requests in one step, so a request has no time of its own that could be measured; its
share shows in how T changes as the mix changes. An overhead that all share (reading the weights once per step) falls
on the requests in the proportion in which more of them means more steps. For a classic model the same equation says
how long its rows keep the replica busy. What counts of a request that lay across a window's edge is the progress that
it made within (`Observation.totals` need not be whole requests).

**Inputs** Observations: per window the sums of all terms, its seconds, and the mix that ran.
**Parameters** `FOLDS` = 10 folds over mixes, dealt `DEALS` = 3 times, for the error on mixes not seen.
`BEYOND_NOISE` = 2 standard errors by which a convex term must lower that error. `DEPENDENT` = 3 %: a term of which the
others explain all but so much was not varied. `HUBER` = 1.5 deviations after which an observation counts for less.
**Trade-offs** Errors are relative, so that a light mix weighs as much as a heavy one. Convex terms are left out in
doubt: a straight line extrapolates better than a parabola that noise has bent.
**Failure modes** A term that never varied on its own has no coefficient and is reported; its cost is then in the terms
that it moved with, which price it right only as long as it moves with them. Windows with other load on the machine
look dear; two reweightings take single ones out, not a lasting one.

The calibration calls it; it reads no clock and draws from no global randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from steelyard.policy.nnls import Array, nnls
from steelyard.policy.units import CAPACITY_MMU_PER_S, MMU_PER_MU, TERMS, Features, LinearCost, Term, term_values

FOLDS = 10
DEALS = 3
BEYOND_NOISE = 2.0
DEPENDENT = 0.03
HUBER = 1.5
_LEAST_GAIN = 0.002  # of the relative error: less is not worth a term, however sure
_REWEIGHTINGS = 2
_ILL_CONDITIONED = 30.0
_MU_PER_S = CAPACITY_MMU_PER_S / MMU_PER_MU
# In this order terms are told apart: of two that always moved together, the first one keeps the cost of both.
_PREFERENCE = (Term.REQUEST, Term.OUTPUT, Term.INPUT, Term.ROW, Term.IMAGE, Term.CACHED, Term.ATTENTION, Term.CONTEXT)
CONVEX = (Term.CONTEXT, Term.ATTENTION)


@dataclass(frozen=True, slots=True)
class Observation:
    """One window of a saturated replica. `mix` names what ran: windows of one mix are held out together."""

    mix: str
    totals: tuple[float, ...]  # what was done, per term in the order of `TERMS`
    seconds: float


def observation_of(mix: str, requests: Iterable[Features], seconds: float) -> Observation:
    """For whole requests."""
    sums = [0.0] * len(TERMS)
    for features in requests:
        for place, value in enumerate(term_values(features)):
            sums[place] += value
    return Observation(mix, tuple(sums), seconds)


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors |predicted ÷ measured - 1| of a number of windows."""

    median: float
    p95: float
    count: int


@dataclass(frozen=True, slots=True)
class Fit:
    """`cost.uncertainty` is the median error across folds. `unseen` terms were zero in every window; `inseparable`
    ones moved only together with others; neither has a coefficient. `notes` are sentences about both and about how
    well the windows determine the rest."""

    cost: LinearCost
    cross_validated: Errors | None  # None: fewer than three mixes
    unseen: tuple[Term, ...]
    inseparable: tuple[Term, ...]
    notes: tuple[str, ...]


def fit(observations: Sequence[Observation], *, seed: int = 0) -> Fit:
    """Raises ValueError when nothing was observed. `seed` deals the folds."""
    usable = [item for item in observations if item.seconds > 0 and any(item.totals)]
    if not usable:
        raise ValueError("There is no observation to fit a cost from.")
    matrix, mixes = _relative(usable), [item.mix for item in usable]
    unseen = tuple(term for place, term in enumerate(TERMS) if not matrix[:, place].any())
    chosen, inseparable, notes = _separable(matrix, [term for term in _PREFERENCE if term not in {*unseen, *CONVEX}])
    deals = _deals(mixes, Random(seed))
    errors = _heldout(matrix, chosen, deals)
    for term in CONVEX if errors is not None else ():
        if term in unseen:
            continue
        wider, dependent, _ = _separable(matrix, [*chosen, term])
        if dependent:
            inseparable = (*inseparable, *dependent)
            continue
        assert errors is not None
        better = _heldout(matrix, wider, deals)
        if better is not None and _beyond_noise(errors, better, mixes):
            chosen, errors = wider, better
    weights = _robust(matrix, chosen)
    summary = None if errors is None else _errors(errors)
    coefficients = {term: _MU_PER_S * float(weight) for term, weight in zip(chosen, weights, strict=True) if weight > 0}
    return Fit(
        cost=LinearCost(coefficients, None if summary is None else summary.median),
        cross_validated=summary,
        unseen=unseen,
        inseparable=inseparable,
        notes=(*notes, *_condition(matrix, chosen)),
    )


def predicted_s(cost: LinearCost, observation: Observation) -> float:
    """For how long the replica should have been busy with what a window got done."""
    return sum(cost.coefficients.get(term, 0.0) * observation.totals[TERMS.index(term)] for term in TERMS) / _MU_PER_S


def evaluate(cost: LinearCost, observations: Sequence[Observation]) -> Errors | None:
    """The error on windows that `cost` was not fitted to; None when there are none."""
    measured = [item for item in observations if item.seconds > 0]
    if not measured:
        return None
    return _errors(np.array([abs(predicted_s(cost, item) / item.seconds - 1) for item in measured]))


def _relative(observations: Sequence[Observation]) -> Array:
    """Rows divided by their seconds: fitted to ones, so that errors are relative."""
    return np.array([[value / item.seconds for value in item.totals] for item in observations], dtype=np.float64)


def _columns(matrix: Array, terms: Sequence[Term]) -> Array:
    columns: Array = matrix[:, [TERMS.index(term) for term in terms]]
    return columns


def _robust(matrix: Array, terms: Sequence[Term]) -> Array:
    """Non-negative weights of the terms, with observations far off the others counting for less."""
    columns = _columns(matrix, terms)
    norms = np.sqrt((columns**2).mean(axis=0))
    norms[norms == 0] = 1.0  # a fold without the term
    scaled, ones = columns / norms, np.ones(len(columns))
    solution = nnls(scaled, ones)
    for _ in range(_REWEIGHTINGS if len(columns) > len(terms) + 1 else 0):
        residuals = scaled @ solution - 1
        deviation = 1.4826 * float(np.median(np.abs(residuals)))
        if deviation < 1e-9:
            break
        root = np.sqrt(np.minimum(1.0, HUBER * deviation / np.maximum(np.abs(residuals), 1e-12)))
        solution = nnls(scaled * root[:, None], root)
    weights: Array = solution / norms
    return weights


def _separable(matrix: Array, terms: Sequence[Term]) -> tuple[list[Term], tuple[Term, ...], tuple[str, ...]]:
    """Those that varied on their own, those that did not, and a sentence about each of the latter."""
    kept: list[Term] = []
    dependent: list[Term] = []
    notes: list[str] = []
    for term in terms:
        column = _columns(matrix, [term])[:, 0]
        others = _columns(matrix, kept)
        others = others / np.linalg.norm(others, axis=0)
        shares = np.linalg.lstsq(others, column, rcond=None)[0] if kept else np.zeros(0)
        left = np.linalg.norm(column - others @ shares) / np.linalg.norm(column)
        if left > DEPENDENT:
            kept.append(term)
            continue
        dependent.append(term)
        largest = max(float(np.abs(shares).max()), 1e-300)
        names = [f"'{name}'" for name, share in zip(kept, shares, strict=True) if abs(share) > 0.1 * largest]
        notes.append(f"'{term}' never varied apart from {' and '.join(names)}, which bears its cost.")
    return kept, tuple(dependent), tuple(notes)


def _condition(matrix: Array, terms: Sequence[Term]) -> tuple[str, ...]:
    """Whether the chosen terms are far enough apart for their coefficients, one by one, to mean something."""
    columns = _columns(matrix, terms)
    columns = columns / np.linalg.norm(columns, axis=0)
    values = np.linalg.svd(columns, compute_uv=False)
    if len(columns) < len(terms):
        return (f"There are fewer windows ({len(columns)}) than terms ({len(terms)}).",)
    if len(terms) < 2 or values[-1] * _ILL_CONDITIONED > values[0]:
        return ()
    alike = np.abs(columns.T @ columns) - np.eye(len(terms))
    one, other = (terms[int(place)].value for place in np.unravel_index(int(alike.argmax()), alike.shape))
    number = values[0] / max(float(values[-1]), 1e-300)
    return (f"'{one}' and '{other}' varied nearly together (condition {number:.0f}); their sum is surer than each.",)


Deal = list[npt.NDArray[np.bool_]]  # per fold: what is held out


def _deals(mixes: Sequence[str], random: Random) -> list[Deal]:
    names = sorted(set(mixes))
    if len(names) < 3:
        return []
    deals: list[Deal] = []
    for _ in range(DEALS):
        random.shuffle(names)
        folds = [set(names[start :: min(FOLDS, len(names))]) for start in range(min(FOLDS, len(names)))]
        deals.append([np.array([mix in fold for mix in mixes]) for fold in folds])
    return deals


def _heldout(matrix: Array, terms: Sequence[Term], deals: Sequence[Deal]) -> Array | None:
    """Per observation the relative error of fits that had not seen its mix, averaged over the deals."""
    if not deals:
        return None
    total = np.zeros(len(matrix))
    for deal in deals:
        for held in deal:
            weights = _robust(matrix[~held], terms)
            total[held] += np.abs(_columns(matrix[held], terms) @ weights - 1)
    return total / len(deals)


def _beyond_noise(before: Array, after: Array, mixes: Sequence[str]) -> bool:
    """The errors fell by more than their own scatter between mixes."""
    by_mix = [float((before - after)[[item == mix for item in mixes]].mean()) for mix in sorted(set(mixes))]
    gain = float(np.mean(by_mix))
    noise = float(np.std(by_mix, ddof=1)) / len(by_mix) ** 0.5
    return bool(gain > max(_LEAST_GAIN, BEYOND_NOISE * noise))


def _errors(errors: Array) -> Errors:
    return Errors(float(np.median(errors)), float(np.quantile(errors, 0.95)), len(errors))
