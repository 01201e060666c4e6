"""The oracle of simulated replicas: the same engine, one step at a time, in the plainest way. Slow on purpose."""

from collections import Counter, deque
from dataclasses import dataclass, field

from steelyard.simulate.batch_speed import BatchSpeed


@dataclass(eq=False)
class Job:
    arrival_s: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()
    end_blocks: tuple[int, ...] = ()
    emitted: int = 0
    left: int = 0  # of the prompt
    own: int = 0  # tokens held beside the pinned blocks
    held: tuple[int, ...] = ()
    cached: int = -1
    first_s: float = -1.0
    end_s: float = -1.0
    order: int = 0

    @property
    def decodes(self) -> bool:
        return self.left == 0


@dataclass
class Stepwise:
    model: BatchSpeed
    block_tokens: int
    speed: float = 1.0
    active: list[Job] = field(default_factory=list)
    waiting: deque[Job] = field(default_factory=deque)
    pins: Counter[int] = field(default_factory=Counter)
    idle: list[int] = field(default_factory=list)  # least used first
    preemptions: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        self.limit = self.model.kv_tokens - self.model.kv_tokens // 100

    def run(self, jobs: list[Job]) -> None:
        coming = deque(sorted(jobs, key=lambda job: job.arrival_s))
        now_s = 0.0
        while coming or self.active or self.waiting:
            if not self.active and not self.waiting:
                now_s = max(now_s, coming[0].arrival_s)
            while coming and coming[0].arrival_s <= now_s:
                self.waiting.append(coming.popleft())
            now_s = self.step(now_s)

    def pinned(self) -> int:
        return sum(job.own for job in self.active) + self.block_tokens * len(self.pins)

    def step(self, now_s: float) -> float:
        preempted = False
        while len(self.active) > 1 and self.pinned() + len(self.active) > self.limit:
            self.preempt(self.active[-1])
            preempted = True
        decodes = [job for job in self.active if job.decodes]
        budget = self.model.token_budget - len(decodes)
        chunks: list[tuple[Job, int]] = []
        for job in self.active:
            if not job.decodes and budget > 0:
                chunks.append((job, min(budget, job.left)))
                budget -= chunks[-1][1]
        while budget > 0 and self.waiting and not preempted and self.admit(self.waiting[0]):
            job = self.active[-1]
            chunks.append((job, min(budget, job.left)))
            budget -= chunks[-1][1]
        now_s += (
            self.model.step_duration_s(
                running=len(decodes) + len(chunks),
                prefill_tokens=sum(chunk for _, chunk in chunks),
                pairs=sum(chunk * (job.prompt + job.emitted - job.left + chunk / 2) for job, chunk in chunks),
                context_tokens=sum(job.prompt + job.emitted for job in decodes),
            )
            / self.speed
        )
        self.steps += 1
        for job in decodes:
            job.emitted += 1
            job.own += 1
        for job in sorted(decodes, key=lambda job: job.order):
            if job.emitted == job.output:
                self.finish(job, now_s)
        for job, chunk in chunks:
            job.left -= chunk
            if not job.left:
                self.share(job)
                job.emitted += 1
                job.own += 1
                if job.emitted == 1:
                    job.first_s = now_s
                if job.emitted == job.output:
                    self.finish(job, now_s)
        while self.idle and self.pinned() + len(self.idle) * self.block_tokens > self.limit:
            self.idle.pop(0)
        return now_s

    def admit(self, job: Job) -> bool:
        tokens = job.prompt + job.emitted
        found = 0
        while found < min(len(job.blocks), (tokens - 1) // self.block_tokens) and (
            job.blocks[found] in self.pins or job.blocks[found] in self.idle
        ):
            found += 1
        anew = sum(1 for block in job.blocks[:found] if block not in self.pins)
        own = tokens - found * self.block_tokens
        if len(self.active) >= self.model.max_running:
            return False
        if self.pinned() + own + anew * self.block_tokens + len(self.active) + 1 > self.limit:
            return False
        self.waiting.popleft()
        self.hold(job, job.blocks[:found])
        job.left = job.own = own
        if job.cached < 0:
            job.cached = found * self.block_tokens
        self.preemptions += 0
        self.active.append(job)
        job.order = self.steps * 1000 + len(self.active)
        while self.idle and self.pinned() + len(self.idle) * self.block_tokens > self.limit:
            self.idle.pop(0)
        return True

    def hold(self, job: Job, blocks: tuple[int, ...]) -> None:
        for block in blocks:
            self.pins[block] += 1
            if block in self.idle:
                self.idle.remove(block)
        job.held += blocks

    def share(self, job: Job) -> None:
        further = job.blocks[len(job.held) :]
        job.own -= len(further) * self.block_tokens
        self.hold(job, further)

    def release(self, job: Job) -> None:
        for block in reversed(job.held):
            self.pins[block] -= 1
            if not self.pins[block]:
                del self.pins[block]
                self.idle.append(block)
        job.held = ()
        job.own = 0
        self.active.remove(job)

    def finish(self, job: Job, now_s: float) -> None:
        self.hold(job, job.end_blocks)
        self.release(job)
        job.end_s = now_s

    def preempt(self, job: Job) -> None:
        self.release(job)
        self.waiting.appendleft(job)
        self.preemptions += 1
