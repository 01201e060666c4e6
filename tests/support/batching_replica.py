"""A replica on a virtual clock that batches as real ones do, for calibration to find out about."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from random import Random

from steelyard.policy.calibration_grid import Result, Run
from steelyard.policy.calibration_shapes import Mix, Shape
from steelyard.policy.units import TERMS, Features, term_values


@dataclass
class Request:
    shape: Shape
    sent_s: float
    mix: Mix
    computed: int = 0  # of the prompt
    written: int = 0
    first_s: float | None = None
    window_tokens: int = 0
    window_s: float = 0.0


@dataclass
class BatchingEngine:
    """Continuous batching with chunked prefill: a step reads the weights once, whatever is in it."""

    step_s: float = 0.03  # reading the weights
    input_s: float = 0.0012  # per prompt token computed
    output_s: float = 0.004  # per sequence that decodes
    context_s: float = 0.0  # per decoding sequence and token before
    token_budget: int = 256
    noise: float = 0.03
    most_lanes: int = 32
    refuse: int | None = None  # prompts above this many tokens
    seed: int = 1
    now_s: float = 0.0
    lanes: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def run(self, run: Run) -> Result:
        """What the live calibration does on a real replica: keep lanes busy, settle, and measure the progress."""
        started_s = self.now_s
        self.lanes = [lane for lane in self.lanes if lane.first_s is not None][: run.concurrency]
        failed = self._fill(run)
        if not self.lanes:
            self.now_s += 0.01
            return Result((0.0,) * len(TERMS), 0.01, failed=failed, fault="The prompt is too long.")
        while self.now_s - started_s < run.settle_s and any(lane.mix is not run.mix for lane in self.lanes):
            self._step(None)
            failed += self._fill(run)
        for lane in self.lanes:
            lane.window_tokens, lane.window_s = 0, 0.0
        began_s, window = self.now_s, Window(started_s)
        while self.lanes:
            self._step(window)
            failed += self._fill(run)
            length_s = self.now_s - began_s
            if length_s >= run.window_s and (window.finished >= run.enough or length_s >= run.limit_s):
                break
        for lane in self.lanes:
            window.saw(lane)
        return Result(
            tuple(window.totals),
            self.now_s - began_s,
            first_token_s=tenth(window.firsts),
            per_token_s=tenth(window.gaps),
            finished=window.finished,
            failed=failed,
            fault="The prompt is too long." if failed else "",
        )

    def _fill(self, run: Run) -> int:
        failed = 0
        while len(self.lanes) < min(run.concurrency, self.most_lanes) and failed < 5:
            shape = run.mix.draw(self.random)
            if self.refuse is not None and shape.input_tokens > self.refuse:
                failed += 1
                continue
            self.lanes.append(Request(shape, self.now_s, run.mix))
        return failed

    def _step(self, window: Window | None) -> None:
        decoding = [lane for lane in self.lanes if lane.computed == lane.shape.input_tokens]
        left, length_s = self.token_budget - len(decoding), self.step_s
        done: list[Request] = []
        for lane in self.lanes:
            if lane.computed < lane.shape.input_tokens and left > 0:
                count = min(left, lane.shape.input_tokens - lane.computed)
                left -= count
                lane.computed += count
                length_s += count * self.input_s
                if lane.computed == lane.shape.input_tokens:
                    done.append(lane)
        for lane in decoding:
            length_s += self.output_s + self.context_s * (lane.shape.input_tokens + lane.written)
        length_s *= max(0.2, self.random.gauss(1, self.noise))
        self.now_s += length_s
        for lane in done:
            lane.first_s = self.now_s
            if window is not None:
                window.firsts += [self.now_s - lane.sent_s] if lane.sent_s >= window.since_s else []
                window.add(Features(input_tokens=lane.shape.input_tokens), 1)
        for lane in [*decoding, *done]:
            before = lane.shape.input_tokens + lane.written
            lane.written += 1
            lane.window_tokens += 1
            lane.window_s += length_s
            if window is not None:
                window.totals[TERMS.index("output")] += 1
                window.totals[TERMS.index("context")] += before + 0.5
        for lane in [lane for lane in self.lanes if lane.written >= max(1, lane.shape.output_tokens)]:
            self.lanes.remove(lane)
            if window is not None:
                window.finished += lane.sent_s >= window.since_s
                window.saw(lane)


@dataclass
class RowServer:
    """One thread that takes what has arrived, joins its rows and predicts them."""

    batch_s: float = 0.0002
    request_s: float = 0.0001
    row_s: float = 0.000004
    noise: float = 0.05
    seed: int = 1
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.waiting: deque[tuple[float, Shape]] = deque()

    def run(self, run: Run) -> Result:
        self.waiting.clear()
        began_s, totals, waits = self.now_s, [0.0] * len(TERMS), []
        for count in itertools.count():
            while len(self.waiting) < run.concurrency:
                self.waiting.append((self.now_s, run.mix.draw(self.random)))
            batch = [self.waiting.popleft() for _ in range(min(len(self.waiting), 8))]
            rows = sum(shape.rows for _, shape in batch)
            length_s = self.batch_s + self.request_s * len(batch) + self.row_s * rows
            self.now_s += length_s * max(0.2, self.random.gauss(1, self.noise))
            for sent_s, shape in batch:
                waits.append(self.now_s - sent_s)
                totals = [one + other for one, other in zip(totals, term_values(shape.features), strict=True)]
            if self.now_s - began_s >= min(run.window_s, run.limit_s) and count >= 3:
                return Result(tuple(totals), self.now_s - began_s, whole_s=tenth(waits), finished=len(waits))
        raise AssertionError


@dataclass
class Window:
    since_s: float  # latencies of requests that were sent earlier tell of another run
    totals: list[float] = field(default_factory=lambda: [0.0] * len(TERMS))
    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    finished: int = 0

    def add(self, features: Features, requests: float) -> None:
        values = term_values(features)
        self.totals[0] += requests
        for place in range(1, len(TERMS)):
            self.totals[place] += values[place]

    def saw(self, lane: Request) -> None:
        if lane.window_tokens and lane.sent_s >= self.since_s:
            self.gaps.append(lane.window_s / lane.window_tokens)


def tenth(values: list[float]) -> float | None:
    """The slowest but one in ten."""
    return sorted(values)[int(0.9 * (len(values) - 1))] if values else None
