"""Which tokens of which sequences run in the next step. Pure bookkeeping: no tensors, no clock, no sockets.

`core.Engine` calls `plan` before a step and `commit` after it. One rule, no phases: a step has a budget of tokens;
sequences that need only one (decoding) come first, long prompts get what is left in chunks, and waiting sequences are
admitted while cache and rows allow. When a decoding sequence finds no block, the newest sequence of the lowest
priority gives its blocks back and is computed again later; the best and oldest one therefore always advances.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from steelyard.engine.cache import BlockPool
from steelyard.engine.messages import AddRequest, FinishReason, Priority, Rejected
from steelyard.engine.sequence import Sequence

RANKS: dict[Priority, int] = {"probe": 0, "interactive": 1, "batch": 2}


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """`count` tokens of a sequence, from position `start`; `samples` if a new token follows from the last of them."""

    sequence: Sequence
    start: int
    count: int
    samples: bool

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(slots=True)
class StepPlan:
    rows: list[ScheduledRow] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)  # what ended before this step: deadlines

    def take(self, sequence: Sequence, budget: int) -> int:
        """Schedule up to `budget` of a sequence's pending tokens; returns how many."""
        count = min(sequence.num_pending, budget)
        self.rows.append(ScheduledRow(sequence, sequence.num_computed, count, count == sequence.num_pending))
        return count


class Scheduler:
    """`token_budget`: tokens of one step; `max_sequences`: rows of one step (a probe may be one more)."""

    def __init__(self, pool: BlockPool, *, max_model_len: int, max_sequences: int, token_budget: int) -> None:
        if pool.blocks_for(max_model_len) > pool.num_usable:
            raise ValueError("the pool must hold at least one sequence of full length")
        self.pool = pool
        self.max_model_len = max_model_len
        self.max_sequences = max_sequences
        self.token_budget = token_budget
        self.num_preemptions = 0
        self._arrivals = 0
        self._running: list[Sequence] = []  # best priority first, oldest first
        self._waiting: dict[Priority, OrderedDict[int, Sequence]] = {name: OrderedDict() for name in RANKS}
        self._by_id: dict[int, Sequence] = {}

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._by_id) - len(self._running)

    def has_work(self) -> bool:
        return bool(self._by_id)

    def add(self, request: AddRequest, seed: int) -> Rejected | None:
        """Queue a request, or say why it could never run, however empty the engine."""
        length = len(request.prompt_token_ids) + request.max_tokens
        if not request.prompt_token_ids or request.max_tokens < 1:
            return Rejected(request.id, "BAD_REQUEST", "A generation needs at least one prompt token and one output.")
        if length > self.max_model_len:
            message = f"Prompt and output of {length} tokens exceed the context of {self.max_model_len}."
            return Rejected(request.id, "context_length_exceeded", message)
        if request.id in self._by_id:
            raise ValueError(f"request {request.id} exists")
        sequence = Sequence(request, seed, self._arrivals)
        self._arrivals += 1
        self._by_id[request.id] = sequence
        self._waiting[request.priority][request.id] = sequence
        return None

    def cancel(self, request_id: int) -> bool:
        """Drop a request and free its blocks at once; False if it has ended already."""
        sequence = self._by_id.get(request_id)
        if sequence is None:
            return False
        self._remove(sequence)
        return True

    def plan(self, now_s: float) -> StepPlan:
        plan = StepPlan(rejected=self._expire(now_s))
        budget = self._schedule_decodes(plan)
        budget = self._schedule_prefills(plan, budget)
        self._admit(plan, budget)
        return plan

    def commit(self, row: ScheduledRow, token_id: int | None) -> FinishReason | None:
        """Record that a row was computed and, if it sampled, what came out; returns why its sequence ended, if so."""
        sequence = row.sequence
        sequence.num_computed = row.end
        if token_id is None:
            return None
        reason = sequence.append(token_id)
        if reason is not None:
            self._remove(sequence)
        return reason

    def check_integrity(self) -> None:
        """Blocks are owned once and are as many as the tokens need. Raises RuntimeError."""
        self.pool.check_integrity(block for sequence in self._running for block in sequence.block_table)
        for queue in self._waiting.values():
            if any(sequence.block_table for sequence in queue.values()):
                raise RuntimeError("a waiting sequence owns blocks")

    def _expire(self, now_s: float) -> list[Rejected]:
        late = [s for s in self._by_id.values() if s.request.deadline_s is not None and s.request.deadline_s <= now_s]
        for sequence in late:
            self._remove(sequence)
        return [
            Rejected(s.id, "DEADLINE_EXCEEDED", "The deadline passed before the answer was complete.") for s in late
        ]

    def _schedule_decodes(self, plan: StepPlan) -> int:
        """Rows of one token. Each may need one more block, which may cost the worst sequence all of its own."""
        budget = self.token_budget
        for sequence in [s for s in self._running if s.num_pending == 1]:
            if budget == 0:
                break
            if sequence.block_table and self._grow(sequence):
                budget -= plan.take(sequence, 1)
        return budget

    def _grow(self, sequence: Sequence) -> bool:
        """Make room for the sequence's last token; False if the sequence itself had to give way."""
        while len(sequence.block_table) * self.pool.block_size < sequence.num_tokens:
            if self.pool.can_allocate(1):
                sequence.block_table += self.pool.allocate(1)
                continue
            victim = self._running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _schedule_prefills(self, plan: StepPlan, budget: int) -> int:
        for sequence in [s for s in self._running if s.num_pending > 1]:
            if budget == 0:
                break
            budget -= plan.take(sequence, budget)
        return budget

    def _admit(self, plan: StepPlan, budget: int) -> None:
        """Strictly in order: a long prompt at the head isn't overtaken by short ones behind it."""
        while budget and (sequence := next(self._queued(), None)) is not None and self._can_admit(sequence):
            del self._waiting[sequence.request.priority][sequence.id]
            sequence.block_table = self.pool.allocate(self.pool.blocks_for(sequence.num_tokens))
            self._insert_running(sequence)
            budget -= plan.take(sequence, budget)

    def _can_admit(self, sequence: Sequence) -> bool:
        needed = self.pool.blocks_for(sequence.num_tokens)
        if sequence.request.priority == "probe":
            return self.pool.can_allocate(needed) and len(self._running) <= self.max_sequences
        # One block is kept back for each running sequence, or admission would only cause preemptions.
        return self.pool.can_allocate(needed + len(self._running)) and len(self._running) < self.max_sequences

    def _queued(self) -> Iterator[Sequence]:
        for queue in self._waiting.values():
            yield from queue.values()

    def _insert_running(self, sequence: Sequence) -> None:
        key = _order(sequence)
        place = len(self._running)
        while place and _order(self._running[place - 1]) > key:
            place -= 1
        self._running.insert(place, sequence)

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the head of its queue: victims are taken newest first, so they line up oldest first."""
        self._running.remove(sequence)
        self._release(sequence)
        queue = self._waiting[sequence.request.priority]
        queue[sequence.id] = sequence
        queue.move_to_end(sequence.id, last=False)
        self.num_preemptions += 1

    def _remove(self, sequence: Sequence) -> None:
        del self._by_id[sequence.id]
        if self._waiting[sequence.request.priority].pop(sequence.id, None) is None:
            self._running.remove(sequence)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.pool.free(sequence.block_table)
        sequence.block_table = []
        sequence.num_computed = 0


def _order(sequence: Sequence) -> tuple[int, int]:
    return RANKS[sequence.request.priority], sequence.arrival
