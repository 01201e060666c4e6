"""The seam between a replica and the ways of running a model.

The replica knows two kinds of runtime: one that predicts (`pyfunc` and its kin: a blocking call in a thread lane)
and one that generates (the LLM engine: token by token, asynchronously). Runtimes know nothing of HTTP, batching
or endpoints. Both raise errors from `errors.py` only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from steelyard.engine.messages import FinishReason, Priority, SamplingParams
from steelyard.errors import SteelyardError
from steelyard.policy.joining import Waiting
from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.protocols.query import Answer, Query

__all__ = [
    "Caller",
    "FinishReason",
    "GenerateRequest",
    "GenerateRuntime",
    "GenerationLoad",
    "PredictRuntime",
    "Priority",
    "RowRuntime",
    "SamplingParams",
    "Tell",
    "TextDelta",
    "TokenChoice",
    "TokenLogprob",
]


Tell = Callable[[int, Answer | None, SteelyardError | None], None]


class Caller:
    """Who waits for one answer: until `deadline_s` (monotonic), where there is one, and no longer than until `left_s`,
    which the replica's loop sets when the request has ended, however it did. Threads read it."""

    __slots__ = ("deadline_s", "left_s")

    def __init__(self, deadline_s: float | None = None) -> None:
        self.deadline_s = deadline_s
        self.left_s: float | None = None

    def unwanted_s(self, now_s: float) -> float | None:
        """Since when the answer is of no use; None while it is."""
        ends_s = [end_s for end_s in (self.deadline_s, self.left_s) if end_s is not None and end_s <= now_s]
        return min(ends_s) if ends_s else None

    def waits(self, now_s: float) -> bool:
        return self.unwanted_s(now_s) is None


class PredictRuntime(Protocol):
    """A model behind a blocking call: its own code, in a worker process. The replica calls every method in threads,
    never on its loop: `load` once, then at most `max_concurrency` queries at once, and one more for a health probe."""

    name: str  # "pyfunc"
    task: str | None  # None for a model without a chat-like task
    max_concurrency: int
    streams: bool  # whether `stream` works

    @property
    def shares_calls(self) -> bool:
        """Whether requests may share calls; `together` and `answer_together` are called only then."""

    @property
    def most_requests(self) -> int:
        """That are of use at once: `max_concurrency`, or more where requests may share calls. It changes."""

    def load(self) -> None:
        """Make the model ready. Raises ModelLoadError with one sentence for the user."""

    def warm_up(self) -> bool:
        """Predict the model's own input example; False when it has none. Raises ModelLoadError."""

    def answer(self, query: Query, caller: Caller | None = None) -> Answer:
        """One prediction, rendered. The caller's deadline bounds a wait for a process that is started again, and what
        no caller waits for any more tells that a process hangs. Raises BadRequest for wrong inputs, ModelFailed if
        the model raised, BadUpstream if its process died."""

    def stream(self, query: Query, caller: Caller | None = None) -> Iterator[bytes]:
        """The same, piece by piece, each rendered; raises the same errors. Closing it ends the model's work."""

    def together(self, waiting: Sequence[Waiting]) -> int:
        """How many of these requests, from the first, are to be answered by one `answer_together`; at least 1."""

    def answer_together(self, queries: Sequence[Query], callers: Sequence[Caller], tell: Tell) -> int:
        """`tell(place, answer, error)` is called for each query as soon as it is answered, in any order. Returns how
        many calls of the model it took. Raises what `answer` raises of a process: queries not told of are lost."""

    def close(self) -> None:
        """End the worker processes. Safe to call twice."""


class RowRuntime(Protocol):
    """A vectorised model inside the replica's process: typed rows in, as many answers out, each row on its own.

    `predict` is thread-safe, deterministic and holds no lock for long; microseconds for one row, so that it may run
    on the replica's loop. It changes nothing in `inputs`.
    """

    name: str  # "linear", "lightgbm", …

    def predict(self, inputs: Inputs) -> Outputs:
        """Raises BadRequest for rows that the model cannot take, ModelFailed when it fails."""

    def close(self) -> None:
        """Give back native memory. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One sequence to generate; a caller that wants `n` choices sends `n` of them (with seeds `seed + i`)."""

    prompt_token_ids: list[int]
    sampling: SamplingParams
    stop: tuple[str, ...] = ()  # never part of the text that is returned
    max_tokens: int | None = None  # None: as many as fit the context; more than fit are cut to what fits
    priority: Priority = "interactive"
    deadline_s: float | None = None  # time.monotonic() after which the answer is worthless


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One token as a client may see it. `text` has U+FFFD where the token's bytes are not whole characters."""

    token_id: int
    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled token and the most likely ones at its place (the sampled one always among them)."""

    chosen: TokenChoice
    top: list[TokenChoice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of one generation. `token_ids` and `logprobs` belong to `text` exactly: tokens whose text is still
    held back (half a character, the possible start of a stop string) come with the delta that releases it.

    `output_tokens` counts every token generated so far, the end token and cut stop strings included. The last delta,
    and only it, has a `finish_reason`.
    """

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None
    finish_reason: FinishReason | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # prompt tokens whose KV was found ready


@dataclass(frozen=True, slots=True)
class GenerationLoad:
    """The engine's own figures, as of its last step."""

    in_flight: int  # sequences that the runtime has handed to the engine and that have not ended
    queue_depth: int  # of these, the ones that wait for a place in a step
    kv_occupancy: float  # 0..1
    prompt_tokens_total: int
    output_tokens_total: int
    steps_total: int
    preemptions_total: int


class GenerateRuntime(Protocol):
    """A model that writes text. Every method but the async ones returns at once."""

    name: str  # "llm"
    task: str  # "llm/v1/chat" if the model has a chat template, else "llm/v1/completions"
    max_concurrency: int
    context_length: int  # tokens of prompt and output together; known after `start`
    detail: str  # what `start` is doing now

    async def start(self) -> None:
        """Start the engine and wait until the model is loaded. Raises ModelLoadError."""

    async def render_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Token ids of a conversation, ending where the assistant speaks. Raises BadRequest."""

    async def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the model's begin token if it wants one."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[TextDelta, None]:
        """Deltas until one with a finish reason. `aclose()` on the iterator cancels in the engine.

        Nothing happens, and nothing is raised, before the first `anext`. Raises ContextTooLong, InvalidParameter
        (nothing was started), DeadlineExceeded, ModelFailed (this request only) or BadUpstream (the engine died).
        """

    def load(self) -> GenerationLoad: ...

    async def died(self) -> str:
        """Returns, with the reason, when the engine is gone though nobody stopped it. The replica then exits."""

    async def stop(self) -> None:
        """End the engine process; generations still running raise BadUpstream. Safe to call twice."""
