"""What calibration runs next, and when it has seen enough: a state machine, told what each run showed.

First alone: one request at a time says how long tokens or rows take, hence which sizes time allows and, if nobody gave
targets, what "slow" means here. Then the search: the concurrency with the highest rate at which the targets hold.
Then the grid, each mix at that concurrency; where targets were given, at half of it and less while the mix misses one:
a window that misses one is no measure of cost. Held-out mixes run among the others, so that an early stop has both.

**Inputs** `Limits` of the replica, targets if there are any, a budget in seconds; then the `Result` of each `Run`.
**Parameters** `SLO_SCALE` = 10 times the time alone is the target where none is given, but never below `FIRST_TOKEN_S`
= 2 s, `PER_TOKEN_S` = 0.2 s and `WHOLE_S` = 0.1 s. A rate within `SAME_RATE` = 10 % of the best is as good; the least
concurrency of those is taken. `HELD_OUT` = 8 mixes are held out. A mix is halved at most `HALVINGS` = 3 times.
**Trade-offs** One concurrency for all mixes where targets allow it: a replica has one limit, and costs are then linear
in what is counted. That is why targets that were only derived bound the search and not each mix. Windows share what is
left of the budget evenly; the largest shapes are those of which a batch fits into one window.
**Failure modes** A mix that misses a target even at its last halving is used and noted. Shapes that the replica refuses
are left out and noted. When nothing works, `failure` says why. With the budget spent the outcome is not `complete`.

No clock, no I/O: the live calibration, the tests' simulated replica and a replay drive the same lines.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final

from steelyard.policy.calibration_shapes import (
    JITTER,
    Limits,
    Mix,
    Shape,
    Sizes,
    alone,
    designed_mixes,
    first_mix,
    random_mixes,
    reference_mix,
)
from steelyard.policy.cost_fit import Observation
from steelyard.policy.units import TERMS, Term

SLO_SCALE: Final = 10.0
FIRST_TOKEN_S: Final = 2.0
PER_TOKEN_S: Final = 0.2
WHOLE_S: Final = 0.1
SAME_RATE: Final = 0.1
HELD_OUT: Final = 8
HALVINGS: Final = 3
_GROWTH = 4  # of the concurrency, while more of it pays
_PAYS = 1.10  # the rate must grow so much when the concurrency does
_BISECTIONS = 2
_EXPECTED_RUNS = 28
_EXPECTED_LANES = 8
_EXPECTED_SLOWDOWN = 3.0  # of a token of output in a full batch
_LONGEST_PROMPT, _LONGEST_OUTPUT = 4096, 512  # no calibration needs more
_SETTLE_SHARE = 0.25  # of a run's time, at most, before its window begins


class Purpose(StrEnum):
    ALONE = "alone"
    SEARCH = "search"
    GRID = "grid"
    HELD_OUT = "held out"


@dataclass(frozen=True, slots=True)
class Target:
    """What nine in ten requests shall meet. None: no limit."""

    first_token_s: float | None = None
    per_token_s: float | None = None  # mean over a request's output
    whole_s: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Give up what has not begun to answer or is too many, and keep `concurrency` requests under way from now on, all
    new ones of `mix`. Wait up to `settle_s` until none are of another, then measure for `window_s`, or until `enough`
    requests have finished if that takes longer, but not beyond `limit_s`."""

    purpose: Purpose
    mix: Mix
    concurrency: int
    settle_s: float
    window_s: float
    enough: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """`totals`: per term, what was done within the window of `seconds`, for whomever. The rest is of requests that were
    sent since the run began: latencies of the slowest but one in ten (None: not seen), how many ended. `fault` is what
    the replica said of the last one that failed."""

    totals: tuple[float, ...]
    seconds: float
    first_token_s: float | None = None
    per_token_s: float | None = None
    whole_s: float | None = None
    finished: int = 0
    failed: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One window that counts, at the highest concurrency at which the mix met the targets."""

    observation: Observation
    concurrency: int
    in_target: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    grid: tuple[Measured, ...]
    held_out: tuple[Measured, ...]
    concurrency: int  # of the replica: where the reference mix has its highest rate within the targets
    target: Target
    sizes: Sizes  # beyond these a cost is extrapolated
    complete: bool
    notes: tuple[str, ...]
    failure: str | None


class ConcurrencySearch:
    """The least concurrency with about the highest rate at which targets hold: growth, then bisection."""

    def __init__(self, most: int, rate_alone: float, holds_alone: bool) -> None:
        self._most = max(1, most)
        self._rates: dict[int, float] = {1: rate_alone} if holds_alone else {}
        self._low, self._high = 1, self._most + 1  # the targets hold at `low`; they fail, or nothing is won, at `high`
        self._growing = holds_alone
        self._bisections = 0

    def next(self) -> int | None:
        """What to try; None: done."""
        if self._growing and self._low < self._most:
            return min(self._most, self._low * _GROWTH)
        middle = round(math.sqrt(self._low * self._high))
        if self._high > self._most or self._bisections >= _BISECTIONS or not self._low < middle < self._high:
            return None
        return middle

    def observe(self, concurrency: int, rate: float, holds: bool) -> None:
        self._bisections += not self._growing
        before = self._rates.get(self._low, 0.0)
        pays = rate > _PAYS * before
        if holds:
            self._rates[concurrency] = rate
        if holds and (pays or not self._growing):
            self._low = concurrency
        elif not holds:
            self._high, self._growing = concurrency, False
        else:
            self._growing = False  # a plateau: the targets hold, and more wins nothing
            self._high = self._most + 1

    @property
    def best(self) -> int:
        """1 when the targets held nowhere."""
        most = max(self._rates.values(), default=0.0)
        return min((lanes for lanes, rate in self._rates.items() if rate >= (1 - SAME_RATE) * most), default=1)


@dataclass(slots=True)
class _Pending:
    purpose: Purpose
    mix: Mix
    concurrency: int
    halvings: int = 0


class CalibrationGrid:
    """`next` says what to run, `observe` takes what came of it. `seed` draws the held-out mixes."""

    def __init__(self, limits: Limits, *, budget_s: float, target: Target | None = None, seed: int = 0) -> None:
        self._limits = limits
        self._budget_s = budget_s
        self._given = target
        self._random = Random(seed)
        self._elapsed_s = 0.0
        self._target = target or Target()
        self._sizes = Sizes()
        self._search: ConcurrencySearch | None = None
        self._searched: dict[int, Measured] = {}
        self._queue: deque[_Pending] = deque([_Pending(Purpose.ALONE, first_mix(limits), 1)])
        self._grid: list[Measured] = []
        self._held_out: list[Measured] = []
        self._notes: list[str] = []
        self._out_of_time = False
        self._failure: str | None = None

    @property
    def runs_left(self) -> int:
        """About how many; for showing progress."""
        return len(self._queue) if self._planned else max(_EXPECTED_RUNS - len(self._searched), 1)

    def next(self) -> Run | None:
        """None: there is nothing more to learn, or no time."""
        if self._failure is not None or not self._queue:
            return None
        share_s = (self._budget_s - self._elapsed_s) / max(self.runs_left, 1)
        if self._planned and share_s < 0.25 * self._budget_s / _EXPECTED_RUNS:
            self._out_of_time = True
            return None
        pending = self._queue[0]
        first = pending.purpose is Purpose.ALONE
        return Run(
            purpose=pending.purpose,
            mix=pending.mix,
            concurrency=pending.concurrency,
            settle_s=_SETTLE_SHARE * share_s,
            window_s=(0.25 if first else 0.7) * share_s,
            enough=3 if first else 2,
            limit_s=(4 if first else 1) * share_s,
        )

    def observe(self, result: Result, elapsed_s: float) -> None:
        """The result of what `next` said last; `elapsed_s` since calibration began."""
        self._elapsed_s = elapsed_s
        pending = self._queue.popleft()
        if result.finished == 0 and (result.failed or not any(result.totals)):
            self._refused(pending, result)
        elif pending.purpose is Purpose.ALONE:
            self._saw_alone(pending, result)
        elif pending.purpose is Purpose.SEARCH:
            self._saw_search(pending, result)
        else:
            self._saw_mix(pending, result)

    def outcome(self) -> Outcome:
        return Outcome(
            grid=tuple(self._grid),
            held_out=tuple(self._held_out),
            concurrency=1 if self._search is None else self._search.best,
            target=self._target,
            sizes=self._sizes,
            complete=self._planned and not self._queue and not self._out_of_time,
            notes=tuple(self._notes),
            failure=self._failure,
        )

    @property
    def _planned(self) -> bool:
        return self._search is not None and not any(item.purpose is Purpose.SEARCH for item in self._queue)

    def _refused(self, pending: _Pending, result: Result) -> None:
        why = result.fault or "nothing finished in time"
        if pending.purpose is Purpose.ALONE and not self._sizes.request_s:
            self._failure = f"The model did not answer the first requests of its calibration: {why}"
        elif pending.purpose is Purpose.ALONE:
            self._size_rows(1, self._sizes.request_s)
        elif pending.purpose is Purpose.SEARCH:
            self._went_on(pending, 0.0, holds=False)
        else:
            self._notes.append(f"The mix '{pending.mix.name}' is left out: {why}")

    def _saw_alone(self, pending: _Pending, result: Result) -> None:
        shape = pending.mix.parts[0][0]
        requests = result.totals[TERMS.index(Term.REQUEST)]
        each_s = result.seconds / max(requests, 1e-9)
        if not self._limits.generates:
            if shape.rows == 1 and self._limits.max_rows > 1:
                self._sizes = Sizes(rows=1, request_s=each_s)
                largest = Shape(rows=max(2, int(self._limits.max_rows / (1 + JITTER))))
                self._queue.append(_Pending(Purpose.ALONE, alone(largest, "largest"), 1))
            else:
                rows = result.totals[TERMS.index(Term.ROW)] / max(requests, 1e-9)
                self._size_rows(rows, each_s)
            return
        first_s = result.first_token_s or each_s / 2
        token_s = result.per_token_s or each_s / max(shape.output_tokens, 1)
        share_s = self._budget_s / _EXPECTED_RUNS
        input_s = first_s / shape.input_tokens
        lanes = min(_EXPECTED_LANES, self._limits.max_concurrency)
        affordable_in = int(share_s / (lanes * input_s))
        affordable_out = int(share_s / (_EXPECTED_SLOWDOWN * token_s))
        context = self._limits.max_context
        self._sizes = Sizes(
            input_tokens=max(1, min(_LONGEST_PROMPT, context // 2, max(shape.input_tokens, affordable_in))),
            output_tokens=max(1, min(_LONGEST_OUTPUT, context // 4, max(shape.output_tokens, affordable_out))),
            input_token_s=input_s,
            output_token_s=token_s,
        )
        if self._given is None:
            longest_s = input_s * self._sizes.input_tokens
            self._target = Target(max(FIRST_TOKEN_S, SLO_SCALE * longest_s), max(PER_TOKEN_S, SLO_SCALE * token_s))
        self._begin_search(result)

    def _size_rows(self, rows: float, each_s: float) -> None:
        """The largest request alone has been seen."""
        one_s = self._sizes.request_s or each_s
        row_s = max(0.0, each_s - one_s) / max(rows - 1, 1)
        most_s = self._budget_s / _EXPECTED_RUNS / (2 * _EXPECTED_LANES)
        most = int(rows) if each_s <= most_s else 1 + int((most_s - one_s) / row_s) if row_s and one_s < most_s else 1
        self._sizes = Sizes(rows=max(1, min(most, int(rows))), request_s=one_s, row_s=row_s)
        if self._given is None:
            largest_s = self._sizes.work_s(Shape(rows=self._sizes.rows))
            self._target = Target(whole_s=max(WHOLE_S, SLO_SCALE * largest_s))
        self._begin_search(None)

    def _begin_search(self, seen: Result | None) -> None:
        holds = seen is None or self._holds(seen)
        rate = 0.0 if seen is None else self._rate(seen)  # a replica waits between rows that come one at a time
        self._search = ConcurrencySearch(self._limits.max_concurrency, rate, holds)
        self._continue_search()

    def _saw_search(self, pending: _Pending, result: Result) -> None:
        # Lanes that are not renewed within a window show what ran before: so many cannot be measured in the time.
        holds = self._holds(result) and 2 * result.finished >= pending.concurrency
        self._searched[pending.concurrency] = self._measured(pending, result, holds)
        self._went_on(pending, self._rate(result), holds)

    def _went_on(self, pending: _Pending, rate: float, holds: bool) -> None:
        assert self._search is not None
        self._search.observe(pending.concurrency, rate, holds)
        self._continue_search()

    def _continue_search(self) -> None:
        assert self._search is not None
        lanes = self._search.next()
        if lanes is not None:
            self._queue.append(_Pending(Purpose.SEARCH, reference_mix(self._limits, self._sizes), lanes))
            return
        self._plan_mixes(self._search.best)

    def _plan_mixes(self, lanes: int) -> None:
        """The grid with the held-out mixes among it: the corners first, then one in every two."""
        grid = designed_mixes(self._limits, self._sizes)
        if lanes in self._searched:
            self._grid.append(self._searched[lanes])
        else:
            grid.insert(0, reference_mix(self._limits, self._sizes))
        held = random_mixes(self._limits, self._sizes, HELD_OUT, self._random)
        for place, mix in enumerate(grid):
            self._queue.append(_Pending(Purpose.GRID, mix, lanes))
            if place >= 3 and held:
                self._queue.append(_Pending(Purpose.HELD_OUT, held.pop(), lanes))
        self._queue.extend(_Pending(Purpose.HELD_OUT, mix, lanes) for mix in held)

    def _saw_mix(self, pending: _Pending, result: Result) -> None:
        holds = self._holds(result)
        if not holds and self._given is not None and pending.concurrency > 1 and pending.halvings < HALVINGS:
            half = replace(pending, concurrency=pending.concurrency // 2, halvings=pending.halvings + 1)
            self._queue.appendleft(half)
            return
        if not holds and self._given is not None:
            self._notes.append(f"The mix '{pending.mix.name}' misses the targets even {pending.concurrency} at a time.")
        if result.failed:
            asked = result.failed + result.finished
            self._notes.append(f"{result.failed} of {asked} requests of '{pending.mix.name}' failed: {result.fault}")
        kept = self._grid if pending.purpose is Purpose.GRID else self._held_out
        kept.append(self._measured(pending, result, holds))

    def _measured(self, pending: _Pending, result: Result, holds: bool) -> Measured:
        observation = Observation(pending.mix.name, result.totals, result.seconds)
        return Measured(observation, pending.concurrency, holds)

    def _holds(self, result: Result) -> bool:
        pairs = (
            (result.first_token_s, self._target.first_token_s),
            (result.per_token_s, self._target.per_token_s),
            (result.whole_s, self._target.whole_s),
        )
        met = all(seen is None or bound is None or seen <= bound for seen, bound in pairs)
        return met and result.failed * 10 <= result.finished

    def _rate(self, result: Result) -> float:
        """Work per second, in seconds that it would take alone: comparable between runs of about one mix."""
        totals = dict(zip(TERMS, result.totals, strict=True))
        work_s = (
            self._sizes.request_s * totals[Term.REQUEST]
            + self._sizes.input_token_s * (totals[Term.INPUT] + totals[Term.IMAGE])
            + self._sizes.output_token_s * totals[Term.OUTPUT]
            + self._sizes.row_s * totals[Term.ROW]
        )
        return work_s / result.seconds
