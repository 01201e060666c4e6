"""What cells came to, in figures that can be compared: per trace, number of replicas and policy, and against the best.

Pure: answers in, figures out. The matrix makes scores, the tables and plots show them; nothing here rounds or hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.requests import Answer, Outcome
from steelyard.simulate.reuse import ideal_cached_tokens
from steelyard.simulate.routing import MODEL_UNITS, Run
from steelyard.simulate.scaling import Scaled

ITL_TARGET_S = 0.1  # mean time between tokens
TTFT_TARGET_S = 1.0  # and twice the time that its prompt takes alone


@dataclass(frozen=True, slots=True)
class Score:
    """One cell of one policy. `hit_of_ideal` NaN: nothing could be reused."""

    trace: str
    replicas: int
    policy: str
    requests: int
    lost: int
    hit_of_ideal: float
    ttft_p50_s: float
    ttft_p99_s: float
    itl_p99_s: float
    latency_p99_s: float
    goodput: float  # share of all scored requests that were finished within both targets
    max_over_mean: float  # of the seconds of work that replicas did
    decision_us: float
    preemptions: int

    def as_json(self) -> dict[str, str | float | int | None]:
        """JSON knows no NaN and no infinity: None."""
        values: dict[str, str | float | int | None] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            values[name] = None if isinstance(value, float) and not math.isfinite(value) else value
        return values


@dataclass(frozen=True, slots=True)
class Standing:
    """Model units in one cell beside the best policy there: 1 is the best itself, 1.1 a tenth worse."""

    trace: str
    replicas: int
    ttft: float
    ttft_best: str
    goodput: float
    goodput_best: str

    @property
    def worse(self) -> float:
        return max(self.ttft, self.goodput)


def meets_target(answer: Answer, model: BatchSpeed) -> bool:
    """Whether a user would call that fast: first token soon for its length, and then no slower than one reads."""
    return (
        answer.outcome is Outcome.FINISHED
        and answer.ttft_s <= TTFT_TARGET_S + 2 * model.alone_s(answer.request.input_tokens)
        and answer.itl_s <= ITL_TARGET_S
    )


def scored(pairs: Sequence[tuple[Scaled, Run]], model: BatchSpeed, replicas: int) -> Score:
    """One policy's runs of a cell, one for each seed, pooled."""
    answers: list[Answer] = []
    ideal_tokens = cached_tokens = 0
    balance: list[float] = []
    for scaled, run in pairs:
        ideal = ideal_cached_tokens(scaled.requests, scaled.trace.block_tokens)
        counted = [answer for answer in run.answers if answer.arrived_s >= scaled.warm_s]
        ideal_tokens += sum(ideal[answer.number] for answer in counted)
        cached_tokens += sum(answer.cached_tokens for answer in counted)
        answers += counted
        work = [work / speed for work, speed in zip(run.work_mmu, run.speeds, strict=True) if work is not None]
        balance.append(max(work) / max(1e-9, sum(work) / len(work)))
    finished = [answer for answer in answers if answer.outcome is Outcome.FINISHED]
    ttft_s = [answer.ttft_s for answer in finished]
    decisions = [ns for _, run in pairs for ns in run.decision_ns]
    first, run = pairs[0]
    return Score(
        trace=first.trace.name,
        replicas=replicas,
        policy=run.policy,
        requests=len(answers),
        lost=len(answers) - len(finished),
        hit_of_ideal=cached_tokens / ideal_tokens if ideal_tokens else float("nan"),
        ttft_p50_s=_quantile(ttft_s, 0.5),
        ttft_p99_s=_quantile(ttft_s, 0.99),
        itl_p99_s=_quantile([answer.itl_s for answer in finished], 0.99),
        latency_p99_s=_quantile([answer.end_s - answer.arrived_s for answer in finished], 0.99),
        goodput=sum(1 for answer in finished if meets_target(answer, model)) / max(1, len(answers)),
        max_over_mean=sum(balance) / len(balance),
        decision_us=sum(decisions) / max(1, len(decisions)) / 1000,
        preemptions=sum(run.preemptions for _, run in pairs),
    )


def standings(scores: Iterable[Score]) -> list[Standing]:
    """Of each cell that model units and at least one other policy ran in."""
    cells: dict[tuple[str, int], list[Score]] = {}
    for score in scores:
        cells.setdefault((score.trace, score.replicas), []).append(score)
    found = []
    for (trace, replicas), cell in cells.items():
        own = next((score for score in cell if score.policy == MODEL_UNITS), None)
        if own is None or len(cell) == 1:
            continue
        soonest = min(cell, key=lambda score: score.ttft_p99_s)
        most = max(cell, key=lambda score: score.goodput)
        found.append(
            Standing(
                trace=trace,
                replicas=replicas,
                ttft=own.ttft_p99_s / soonest.ttft_p99_s,
                ttft_best=soonest.policy,
                goodput=most.goodput / own.goodput if own.goodput else float("inf") if most.goodput else 1.0,
                goodput_best=most.policy,
            )
        )
    return found


def _quantile(values: list[float], share: float) -> float:
    """A value that occurred, not one between two."""
    return float(np.quantile(values, share, method="inverted_cdf")) if values else float("nan")
