"""One cell of the comparison: a trace through a simulated router with one policy, to the last request's end.

The router's part is what the live one does: it weighs a request by what is known of it (not how long its answer will
be, nor what is cached), lets the policy choose and charge, follows the tokens that stream back, settles once with what
it really cost, and tells the policy how many tokens had been cached. The CLI runs cells; this decides nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from steelyard.policy.expected_wait import ExpectedWait
from steelyard.policy.ledger import Ledger
from steelyard.policy.output_length import OutputLengths
from steelyard.policy.routing import (
    Ask,
    Candidate,
    Chooser,
    Decision,
    LeastInTurn,
    LeastRequests,
    PowerOfTwoChoices,
    RoundRobin,
)
from steelyard.policy.routing_choice import WeighOrCount
from steelyard.policy.units import CostModel, Features
from steelyard.simulate.baselines import PrefixAffinityGate
from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.clock import VirtualClock
from steelyard.simulate.events import EventQueue
from steelyard.simulate.replicas import Replica
from steelyard.simulate.requests import Answer, Outcome, SimRequest
from steelyard.simulate.scaling import Scaled, price
from steelyard.simulate.sequences import Sequence as Attempt

MODEL_UNITS = "model-units"
POLICIES: dict[str, Callable[[Ledger, Random], Chooser]] = {
    MODEL_UNITS: lambda ledger, rng: WeighOrCount(ExpectedWait(ledger, rng), LeastInTurn(ledger, rng)),
    "prefix-gate": PrefixAffinityGate,
    "least-requests": LeastRequests,
    "two-choices": PowerOfTwoChoices,
    "round-robin": lambda ledger, rng: RoundRobin(ledger),
}

FOLLOW_S = 0.25  # how often what streamed is taken off the ledger; live, every chunk is
UNDERESTIMATED = 1.25  # an answer longer than was thought is thought to become so much longer than it is
REFUSED_S = 1.0  # how long a replica that refused is left alone


class Exchange:
    """One request in the router."""

    __slots__ = (
        "arrived_s",
        "ask",
        "attempts",
        "decision",
        "expected_tokens",
        "first_token_s",
        "followed_tokens",
        "number",
        "request",
        "token_mmu",
    )

    def __init__(self, number: int, request: SimRequest, arrived_s: float) -> None:
        self.number = number
        self.request = request
        self.arrived_s = arrived_s
        self.ask: Ask | None = None
        self.attempts = 0
        self.decision: Decision[Candidate] | None = None
        self.first_token_s = float("nan")
        self.expected_tokens = 0.0
        self.followed_tokens = 0
        self.token_mmu = 0.0


@dataclass(slots=True)
class Run:
    """What one cell came to. `work_mmu` and `speeds` are by replica; a dead one's work is None."""

    policy: str
    answers: list[Answer]
    work_mmu: list[int | None]
    speeds: list[float]
    decision_ns: list[int]
    preemptions: int
    events: int
    ended_s: float


def run(scaled: Scaled, policy: str, model: BatchSpeed, replicas: int, seed: int) -> Run:
    """Simulate one cell. The same arguments give the same answers."""
    return _Router(scaled, policy, model, replicas, seed).run()


class _Router:
    """The simulated router, and the listener of its replicas."""

    def __init__(self, scaled: Scaled, policy: str, model: BatchSpeed, replicas: int, seed: int) -> None:
        trace = scaled.trace
        self._scaled = scaled
        self._policy = policy
        self._cost: CostModel = model.cost()
        self._events = EventQueue(VirtualClock())
        self._ledger = Ledger()
        self._chooser = POLICIES[policy](self._ledger, Random(f"{seed} {policy}"))
        self._lengths = OutputLengths()
        slow = round(trace.slow_share * replicas) if trace.slow_share else 0
        self._replicas: list[Replica[Exchange]] = [
            Replica(
                index, model, self._events, self, block_tokens=trace.block_tokens, speed=0.5 if index < slow else 1.0
            )
            for index in range(replicas)
        ]
        limit = model.max_running + model.max_waiting
        # Candidates are compiled where the data path is, and then cannot be derived from: replicas are found by name.
        self._by_name = {f"replica-{replica.index}": replica for replica in self._replicas}
        self._candidates: Sequence[Candidate] = [Candidate(self._ledger.account(name), limit) for name in self._by_name]
        self._waiting: deque[Exchange] = deque()
        self._answers: list[Answer] = []
        self._decision_ns: list[int] = []
        self._work_mmu = [0] * replicas

    def run(self) -> Run:
        requests = self._scaled.requests
        events = self._events
        if requests:
            events.at(requests[0].arrival_s, self._arrive, 0)
        for index, replica in enumerate(self._replicas):  # not all in one instant
            events.at(FOLLOW_S * (index + 1) / len(self._replicas), self._follow, replica)
        for death in range(self._scaled.trace.deaths):
            events.at(self._scaled.duration_s * (death + 1) / (self._scaled.trace.deaths + 1), self._die, -1 - death)
        events.run()
        return Run(
            policy=self._policy,
            answers=self._answers,
            work_mmu=[work if self._replicas[i].alive else None for i, work in enumerate(self._work_mmu)],
            speeds=[replica.speed for replica in self._replicas],
            decision_ns=self._decision_ns,
            preemptions=sum(replica.preemptions for replica in self._replicas),
            events=events.handled,
            ended_s=max((answer.end_s for answer in self._answers), default=0.0),
        )

    # Requests in

    def _arrive(self, number: int) -> None:
        requests = self._scaled.requests
        if number + 1 < len(requests):
            self._events.at(requests[number + 1].arrival_s, self._arrive, number + 1)
        exchange = Exchange(number, requests[number], self._events.clock.now_s)
        if not self._replicas[0].can_ever_hold(exchange.request.input_tokens, exchange.request.output_tokens):
            self._end(exchange, Outcome.REFUSED)
            return
        self._weigh(exchange)
        self._waiting.append(exchange)
        self._dispatch()

    def _weigh(self, exchange: Exchange) -> None:
        request = exchange.request
        exchange.expected_tokens = self._lengths.estimate(str(request.tenant), None)
        features = Features(input_tokens=request.input_tokens, output_tokens=exchange.expected_tokens)
        block_tokens = float(self._scaled.trace.block_tokens)
        exchange.ask = Ask(features, self._cost, request.blocks, block_tokens, request.key)

    def _dispatch(self, _: object = None) -> None:
        """Send what waits, in order, for as long as somebody can take it."""
        while self._waiting:
            exchange = self._waiting[0]
            ask = exchange.ask
            assert ask is not None
            now_s = self._events.clock.now_s
            began_ns = time.perf_counter_ns()
            decision = self._chooser.choose(self._candidates, now_s, ask)
            self._decision_ns.append(time.perf_counter_ns() - began_ns)
            if decision is None:
                return
            request = exchange.request
            attempt = Attempt(exchange, request.input_tokens, request.output_tokens, request.blocks, request.end_blocks)
            if not self._replica_of(decision).submit(attempt):
                decision.entry.settle()
                self._chooser.settled(decision, ask, now_s, None)
                decision.replica.mark.until_s = now_s + REFUSED_S
                self._events.at(now_s + REFUSED_S, self._dispatch)
                continue
            self._waiting.popleft()
            exchange.decision = decision
            exchange.attempts += 1
            exchange.followed_tokens = 0

    def _replica_of(self, decision: Decision[Candidate]) -> Replica[Exchange]:
        return self._by_name[decision.replica.account.replica]

    # Answers back

    def first_token(self, sequence: Attempt[Exchange]) -> None:
        exchange = sequence.tag
        decision = exchange.decision
        assert decision is not None
        exchange.first_token_s = self._events.clock.now_s
        request = exchange.request
        features = Features(
            input_tokens=request.input_tokens - sequence.cached_tokens, cached_tokens=sequence.cached_tokens
        )
        entry = decision.entry
        before_mmu = self._cost.mmu(features)  # all but the answer, as it turned out
        left_mmu = max(0, decision.entry.charged_mmu - before_mmu)
        entry.progress(entry.remaining_mmu - left_mmu)
        entry.begin_answer()
        exchange.token_mmu = left_mmu / max(1.0, exchange.expected_tokens)
        exchange.followed_tokens = 0

    def finished(self, sequence: Attempt[Exchange]) -> None:
        exchange = sequence.tag
        decision, ask = exchange.decision, exchange.ask
        assert decision is not None
        assert ask is not None
        request = exchange.request
        actual_mmu = price(request, sequence.cached_tokens, self._cost)
        decision.entry.settle(actual_mmu)
        self._chooser.settled(decision, ask, self._events.clock.now_s, float(sequence.cached_tokens))
        self._lengths.learn(str(request.tenant), request.output_tokens)
        self._work_mmu[self._replica_of(decision).index] += actual_mmu
        self._end(exchange, Outcome.FINISHED, sequence.cached_tokens)
        self._dispatch()

    def lost(self, sequence: Attempt[Exchange]) -> None:
        exchange = sequence.tag
        decision, ask = exchange.decision, exchange.ask
        assert decision is not None
        assert ask is not None
        decision.entry.settle()
        self._chooser.settled(decision, ask, self._events.clock.now_s, None)
        if sequence.emitted:  # never a silent retry after output was seen
            self._end(exchange, Outcome.BROKEN, max(0, sequence.cached_tokens))
        else:
            self._waiting.appendleft(exchange)

    def _end(self, exchange: Exchange, outcome: Outcome, cached_tokens: int = 0) -> None:
        self._answers.append(
            Answer(
                number=exchange.number,
                request=exchange.request,
                arrived_s=exchange.arrived_s,
                outcome=outcome,
                first_token_s=exchange.first_token_s,
                end_s=self._events.clock.now_s,
                cached_tokens=cached_tokens,
                replica=-1 if exchange.decision is None else self._replica_of(exchange.decision).index,
                attempts=exchange.attempts,
            )
        )

    def _follow(self, replica: Replica[Exchange]) -> None:
        """What streamed since the last time is no longer owed."""
        steps = replica.steps_now()
        for sequence in replica.decoding:
            exchange = sequence.tag
            decision = exchange.decision
            assert decision is not None
            tokens = sequence.emitted + steps - sequence.joined_step
            if tokens > exchange.expected_tokens:
                exchange.expected_tokens = UNDERESTIMATED * tokens
                more_mmu = (exchange.expected_tokens - tokens) * exchange.token_mmu
                decision.entry.raise_to(decision.entry.charged_mmu + int(more_mmu))
            decision.entry.progress(int((tokens - exchange.followed_tokens) * exchange.token_mmu))
            exchange.followed_tokens = tokens
        if replica.alive and len(self._answers) < len(self._scaled.requests):
            self._events.at(self._events.clock.now_s + FOLLOW_S, self._follow, replica)

    def _die(self, which: int) -> None:
        replica = self._replicas[which]
        name = f"replica-{replica.index}"
        self._ledger.retire(name)
        self._candidates = [candidate for candidate in self._candidates if candidate.account.replica != name]
        replica.die()
        self._dispatch()
