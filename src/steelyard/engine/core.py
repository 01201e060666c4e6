"""The engine as a value: requests in, steps out. No process, no socket, no clock of its own.

`loop.py` drives it in the engine process; tests drive it directly. A step is planned by the scheduler, computed by
the model, sampled, and committed; everything that it produced comes back as one message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from steelyard.engine.batch import build_batch
from steelyard.engine.cache import BlockPool, KVCache
from steelyard.engine.messages import AddRequest, Limits, Rejected, SamplingParams, Stats, StepDone, Token
from steelyard.engine.model import LlamaModel
from steelyard.engine.sampler import Sample, SampleRow, sample
from steelyard.engine.scheduler import ScheduledRow, Scheduler
from steelyard.errors import ModelLoadError


@dataclass(slots=True)
class Counters:
    prompt_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    nonfinite: int = 0
    finished: int = 0
    busy_s: float = 0.0


class Engine:
    """`draw_seed` gives the seed of a request that names none."""

    def __init__(self, model: LlamaModel, limits: Limits, token_budget: int, draw_seed: Callable[[], int]) -> None:
        self._model = model
        self._cache = KVCache(model.config, limits.num_blocks, limits.block_size)
        self._pool = BlockPool(limits.num_blocks, limits.block_size)
        self._limits = limits
        self._draw_seed = draw_seed
        self._counters = Counters()
        self.scheduler = Scheduler(
            self._pool,
            max_model_len=limits.max_model_len,
            max_sequences=limits.max_sequences,
            token_budget=token_budget,
        )

    def add(self, request: AddRequest) -> Rejected | None:
        """Queue a request; returns why not, if it can't be served."""
        ids = [*request.prompt_token_ids, *request.sampling.logit_bias]
        if ids and not (min(ids) >= 0 and max(ids) < self._limits.vocab_size):
            message = f"A token id lies outside the vocabulary of {self._limits.vocab_size}."
            return Rejected(request.id, "INVALID_PARAMETER_VALUE", message)
        seed = request.sampling.seed
        return self.scheduler.add(request, self._draw_seed() if seed is None else seed)

    def cancel(self, request_id: int) -> bool:
        return self.scheduler.cancel(request_id)

    def has_work(self) -> bool:
        return self.scheduler.has_work()

    def step(self, now_s: float) -> StepDone:
        """Compute one step. `now_s` is only compared with deadlines."""
        plan = self.scheduler.plan(now_s)
        tokens: list[Token] = []
        rejected = list(plan.rejected)
        if plan.rows:
            logits = self._model.forward(build_batch(plan.rows, self._limits.block_size), self._cache)
            sampled = [row for row in plan.rows if row.samples]
            results = sample(logits, [_sample_row(row) for row in sampled])
            self._commit_unsampled(plan.rows)
            for row, result in zip(sampled, results, strict=True):
                if result is None:
                    rejected.append(self._fail(row))
                else:
                    tokens.append(self._commit(row, result))
            self._counters.steps += 1
        return StepDone(tokens, rejected, self.stats())

    def warm_up(self) -> None:
        """Compute two tokens of nothing, so that the first request doesn't pay for what torch sets up lazily.

        Raises ModelLoadError when the model can't even do that."""
        greedy = SamplingParams(temperature=0.0, ignore_eos=True)
        self.scheduler.add(AddRequest(-1, [0], greedy, min(2, self._limits.max_model_len - 1)), seed=0)
        while self.has_work():
            if self.step(0.0).rejected:
                raise ModelLoadError("The model's numbers are not finite: the weights are damaged.")
        self._counters = Counters()

    def add_busy_time(self, seconds: float) -> None:
        self._counters.busy_s += seconds

    def stats(self) -> Stats:
        counters = self._counters
        return Stats(
            running=self.scheduler.num_running,
            waiting=self.scheduler.num_waiting,
            blocks_used=self._pool.num_used,
            blocks_total=self._pool.num_usable,
            prompt_tokens_total=counters.prompt_tokens,
            output_tokens_total=counters.output_tokens,
            steps_total=counters.steps,
            preemptions_total=self.scheduler.num_preemptions,
            nonfinite_total=counters.nonfinite,
            finished_total=counters.finished,
            busy_s_total=counters.busy_s,
        )

    def _commit_unsampled(self, rows: list[ScheduledRow]) -> None:
        for row in rows:
            self._counters.prompt_tokens += max(0, min(row.end, row.sequence.num_prompt_tokens) - row.start)
            if not row.samples:
                self.scheduler.commit(row, None)

    def _commit(self, row: ScheduledRow, result: Sample) -> Token:
        reason = self.scheduler.commit(row, result.token_id)
        self._counters.output_tokens += 1
        self._counters.finished += reason is not None
        return Token(row.sequence.id, result.token_id, reason, result.logprobs)

    def _fail(self, row: ScheduledRow) -> Rejected:
        """Its logits are not finite: end this request alone, and leave no trace of its numbers in the cache."""
        self._cache.zero(row.sequence.block_table)
        self.scheduler.cancel(row.sequence.id)
        self._counters.nonfinite += 1
        return Rejected(row.sequence.id, "MODEL_ERROR", "The model produced numbers that are not finite.")


def _sample_row(row: ScheduledRow) -> SampleRow:
    sequence = row.sequence
    sampling = sequence.request.sampling
    # A copy of the output on every step would be quadratic, so only those who look at it get one.
    penalised = sampling.presence_penalty or sampling.frequency_penalty
    return SampleRow(sampling, sequence.seed, sequence.num_tokens, sequence.output_token_ids if penalised else ())
