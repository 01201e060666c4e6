"""A simulated LLM replica: continuous batching, chunked prefill, a KV limit, a bounded queue, a prefix cache.

It is exact to the step without simulating every step. While only decoding goes on, nothing about the batch changes but
the length of its contexts, so that n steps take n × first + growth × n (n − 1) / 2 seconds; one event stands for all
steps until a request finishes, memory runs out, or a new request arrives (which joins at the next step's boundary).
Steps that hold prompt chunks are events of their own. The cell submits and listens; a replica never chooses anything.

As engines do: a request is admitted when its whole prompt fits beside what is pinned; decoding goes before prompts in
the token budget; when memory runs out the youngest request is sent back to the queue's front and later recomputed; a
prompt's blocks can be shared from the end of its prefill.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from typing import Generic

from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.events import EventQueue
from steelyard.simulate.prefix_cache import PrefixCache
from steelyard.simulate.sequences import K, Listener, Sequence


class Replica(Generic[K]):
    """One engine. `speed`: 0.5 takes twice the time for every step."""

    def __init__(
        self,
        index: int,
        model: BatchSpeed,
        events: EventQueue,
        listener: Listener[K],
        *,
        block_tokens: int,
        speed: float = 1.0,
    ) -> None:
        self.index = index
        self.speed = speed
        self.alive = True
        self.busy_s = 0.0
        self.preemptions = 0
        self.cache = PrefixCache(block_tokens)
        self._model = model
        self._events = events
        self._listener = listener
        self._waiting: deque[Sequence[K]] = deque()
        self._active: dict[Sequence[K], None] = {}  # in the order of admission: all that hold memory
        self._prefilling: deque[Sequence[K]] = deque()
        self._finishing: list[tuple[int, int, Sequence[K]]] = []  # heap of (step, stay, sequence)
        self._decoding = 0
        self._context_tokens = 0  # of all that decode
        self._private_tokens = 0  # of all active, what decoding added included
        self._steps = 0
        self._admissions = 0
        self._at_boundary = False  # while listeners are told: what they submit waits for the next run
        self._plan = 0  # number of the plan in force: an event of an older one means nothing
        # The run of steps in progress: when it began, how many, how long the first is, how much longer each next.
        self._run_began_s = 0.0
        self._run_steps = 0
        self._run_first_s = 0.0
        self._run_growth_s = 0.0
        self._chunks: list[tuple[Sequence[K], int]] = []  # of the one step that holds prompts

    # What its owner may ask

    @property
    def in_flight(self) -> int:
        return len(self._active) + len(self._waiting)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def pinned_tokens(self) -> int:
        """Memory that cannot be freed now."""
        return self._private_tokens + self.cache.pinned_blocks * self.cache.block_tokens

    @property
    def decoding(self) -> list[Sequence[K]]:
        """Those that answer now."""
        return [sequence for sequence in self._active if sequence.finish_step]

    def emitted_tokens(self, sequence: Sequence[K]) -> int:
        """Tokens of its answer so far, as of the last change of the batch."""
        return sequence.emitted + (self._steps - sequence.joined_step if sequence.finish_step else 0)

    def steps_now(self) -> int:
        """Whole steps so far, those of a run in progress included."""
        if not self._run_steps or self._chunks:
            return self._steps
        return self._steps + min(self._steps_begun() - 1, self._run_steps)

    def can_ever_hold(self, prompt_tokens: int, output_tokens: int) -> bool:
        return prompt_tokens + output_tokens <= self._usable_tokens

    # What its owner may do

    def submit(self, sequence: Sequence[K]) -> bool:
        """Take a request into the queue. False: dead, or the queue is full."""
        model = self._model
        if not self.alive or len(self._waiting) >= model.max_waiting:
            return False
        if not self.can_ever_hold(sequence.prompt_tokens, sequence.output_tokens):
            raise ValueError(
                f"A request of {sequence.prompt_tokens} + {sequence.output_tokens} tokens cannot be held "
                f"in {self._usable_tokens}."
            )
        blocked = bool(self._waiting) or len(self._active) >= model.max_running
        self._waiting.append(sequence)
        if self._at_boundary:
            return True
        if not self._run_steps:
            self._next_run()
        elif not blocked and not self._chunks:
            self._shorten_run()
        return True

    def die(self) -> None:
        """The process is gone, and with it all that it held."""
        self._settle_run()
        self.alive = False
        self._plan += 1
        self._run_steps = 0
        self._chunks = []
        lost = [*self._active, *self._waiting]
        for sequence in self._active:
            sequence.emitted = self.emitted_tokens(sequence)
            sequence.finish_step = 0
        self._active.clear()
        self._waiting.clear()
        self._prefilling.clear()
        self._finishing.clear()
        self._decoding = self._context_tokens = self._private_tokens = 0
        self.cache.clear()
        for sequence in reversed(lost):  # who puts each at the front of a queue keeps their order
            self._listener.lost(sequence)

    # Runs of steps

    @property
    def _usable_tokens(self) -> int:
        return self._model.kv_tokens - self._model.kv_tokens // 100  # engines keep a hundredth free, against thrashing

    def _run_s(self, steps: int) -> float:
        """How long that many steps of the run take."""
        return steps * self._run_first_s + self._run_growth_s * (steps * (steps - 1) // 2)

    def _next_run(self) -> None:
        """At a step's boundary: admit, then plan until something changes."""
        model = self._model
        budget = model.token_budget - self._decoding
        chunks: list[tuple[Sequence[K], int]] = []
        prompt_tokens, pairs = 0, 0.0
        preempted = self._make_room()
        for sequence in self._prefilling:
            chunk = min(budget, sequence.prompt_left)
            if chunk <= 0:
                break
            chunks.append((sequence, chunk))
            budget -= chunk
        while budget > 0 and self._waiting and not preempted and self._admit_next():
            sequence = self._prefilling[-1]
            chunk = min(budget, sequence.prompt_left)
            chunks.append((sequence, chunk))
            budget -= chunk
        for sequence, chunk in chunks:
            before = sequence.prompt_tokens + sequence.emitted - sequence.prompt_left
            prompt_tokens += chunk
            pairs += chunk * (before + chunk / 2)
        self._chunks = chunks
        decoding = self._decoding
        if not chunks and not decoding:
            self._run_steps = 0
            return
        self._run_first_s = (
            model.step_duration_s(
                running=decoding + len(chunks),
                prefill_tokens=prompt_tokens,
                pairs=pairs,
                context_tokens=self._context_tokens,
            )
            / self.speed
        )
        if chunks:
            self._run_steps = 1
            self._run_growth_s = 0.0
        else:
            room = (self._usable_tokens - self.pinned_tokens) // decoding
            longest = 1 if preempted else room  # after a step that sent some back, the queue is looked at again
            self._run_steps = max(1, min(self._next_finish() - self._steps, longest))
            self._run_growth_s = model.context_s * decoding / self.speed
        self._run_began_s = self._events.clock.now_s
        self._arrange()

    def _arrange(self) -> None:
        self._plan += 1
        end_s = self._run_began_s + self._run_s(self._run_steps)
        self._events.at(max(end_s, self._events.clock.now_s), self._run_ends, self._plan)

    def _shorten_run(self) -> None:
        """A request came while only decoding goes on: end the run with the step in progress."""
        steps = self._steps_begun()
        if steps < self._run_steps:
            self._run_steps = steps
            self._arrange()

    def _steps_begun(self) -> int:
        """Steps of the run that are over or in progress now; at least 1."""
        passed_s = self._events.clock.now_s - self._run_began_s
        growth, first = self._run_growth_s, self._run_first_s
        if growth > 0:
            half = first - growth / 2  # growth/2 n² + half n = passed
            steps = math.ceil((math.sqrt(half * half + 2 * growth * passed_s) - half) / growth)
        else:
            steps = math.ceil(passed_s / first)
        steps = max(1, steps)
        while steps > 1 and self._run_s(steps - 1) >= passed_s:  # what rounding got wrong
            steps -= 1
        while self._run_s(steps) < passed_s:
            steps += 1
        return steps

    def _settle_run(self) -> None:
        """Count the whole steps of a run that is cut off."""
        self._count_steps(self.steps_now() - self._steps)

    def _count_steps(self, steps: int) -> None:
        self._steps += steps
        self._context_tokens += self._decoding * steps
        self._private_tokens += self._decoding * steps

    def _run_ends(self, plan: int) -> None:
        if plan != self._plan:
            return
        self.busy_s += self._run_s(self._run_steps)
        self._count_steps(self._run_steps)
        self._evict(before_tokens=self._decoding)  # what all steps but the last made necessary
        self._run_steps = 0
        self._at_boundary = True
        chunks, self._chunks = self._chunks, []
        for sequence, chunk in chunks:
            sequence.prompt_left -= chunk
        self._finish_due()
        for sequence, _ in chunks:
            if not sequence.prompt_left:
                self._prefilling.remove(sequence)  # among the first few
                self._prompt_done(sequence)
        self._evict()
        self._at_boundary = False
        self._next_run()

    # A sequence's life

    def _admit_next(self) -> bool:
        """Give the head of the queue its memory, if it fits."""
        sequence = self._waiting[0]
        model, cache = self._model, self.cache
        if len(self._active) >= model.max_running:
            return False
        prompt_tokens = sequence.prompt_tokens + sequence.emitted  # what was answered before is computed again
        matched = min(cache.match(sequence.blocks), (prompt_tokens - 1) // cache.block_tokens)
        found = sequence.blocks[:matched]
        private = prompt_tokens - matched * cache.block_tokens
        needed = private + cache.idle_among(found) * cache.block_tokens
        growing = len(self._active) + 1  # each may add a token in this step
        if self.pinned_tokens + needed + growing > self._usable_tokens:
            return False
        self._waiting.popleft()
        cache.pin(found)
        sequence.pinned = found
        sequence.matched = matched
        sequence.private_tokens = private
        sequence.prompt_left = private
        self._admissions += 1
        sequence.stay = self._admissions
        if sequence.cached_tokens < 0:
            sequence.cached_tokens = matched * cache.block_tokens
        self._private_tokens += private
        self._active[sequence] = None
        self._prefilling.append(sequence)
        self._evict()
        return True

    def _prompt_done(self, sequence: Sequence[K]) -> None:
        """The prompt is computed, and the step gave the next token. From now on others may share its blocks."""
        cache = self.cache
        computed = sequence.blocks[sequence.matched :]
        cache.pin(computed)
        sequence.pinned = sequence.blocks
        freed = len(computed) * cache.block_tokens  # those that another computed meanwhile are held once
        sequence.private_tokens += 1 - freed
        self._private_tokens += 1 - freed
        sequence.emitted += 1
        sequence.context_tokens = sequence.prompt_tokens + sequence.emitted
        sequence.joined_step = self._steps
        first = sequence.emitted == 1
        left = sequence.output_tokens - sequence.emitted
        if left:
            sequence.finish_step = self._steps + left
            heappush(self._finishing, (sequence.finish_step, sequence.stay, sequence))
            self._decoding += 1
            self._context_tokens += sequence.context_tokens
        if first:
            self._listener.first_token(sequence)
        if not left:
            self._release(sequence)
            self._listener.finished(sequence)

    def _next_finish(self) -> int:
        """The step at which the next of those that decode ends."""
        finishing = self._finishing
        while finishing[0][2].stay != finishing[0][1] or not finishing[0][2].finish_step:
            heappop(finishing)  # it was sent back to the queue since
        return finishing[0][0]

    def _finish_due(self) -> None:
        finishing = self._finishing
        done: list[Sequence[K]] = []
        while finishing and finishing[0][0] <= self._steps:
            _, stay, sequence = heappop(finishing)
            if sequence.stay == stay and sequence.finish_step:
                done.append(sequence)
        for sequence in done:
            self._stop_decoding(sequence)
            self._release(sequence)
        for sequence in done:
            self._listener.finished(sequence)

    def _stop_decoding(self, sequence: Sequence[K]) -> None:
        added = self._steps - sequence.joined_step
        sequence.emitted += added
        sequence.private_tokens += added
        sequence.finish_step = 0
        self._decoding -= 1
        self._context_tokens -= sequence.context_tokens + added

    def _release(self, sequence: Sequence[K]) -> None:
        """Give its memory back; what it computed stays in the cache, its answer too when it is complete."""
        cache = self.cache
        del self._active[sequence]
        self._private_tokens -= sequence.private_tokens
        sequence.private_tokens = 0
        held = sequence.pinned
        if sequence.emitted == sequence.output_tokens and sequence.end_blocks:
            cache.pin(sequence.end_blocks)
            held = held + sequence.end_blocks
        cache.unpin(held)
        sequence.pinned = ()

    def _make_room(self) -> bool:
        """Send the youngest back to the queue until each active one may add a token. True: some were."""
        active = self._active
        preempted = False
        while len(active) > 1 and self.pinned_tokens + len(active) > self._usable_tokens:
            sequence = next(reversed(active))
            if sequence.finish_step:
                self._stop_decoding(sequence)
            else:
                self._prefilling.remove(sequence)
            self._release(sequence)
            self._waiting.appendleft(sequence)
            self.preemptions += 1
            preempted = True
        return preempted

    def _evict(self, before_tokens: int = 0) -> None:
        """Keep what is cached within what is left beside the pinned, as it was so many tokens ago."""
        block_tokens = self.cache.block_tokens
        excess = self.pinned_tokens - before_tokens + self.cache.idle_blocks * block_tokens - self._usable_tokens
        if excess > 0:
            self.cache.evict(-(-excess // block_tokens))
