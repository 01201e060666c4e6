"""What crosses the socket between the LLM runtime and its engine process, and how it is framed.

`runtimes/engine_process.py` sends commands and reads events; `engine/__main__.py` does the reverse. A frame is a
little-endian u32 byte count followed by one MessagePack value. Nothing here imports torch, so that the replica stays
small.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

Priority = Literal["probe", "interactive", "batch"]
FinishReason = Literal["stop", "length"]

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the next token is chosen. `temperature` 0 means the most likely token, and then nothing else but
    penalties and bias has any effect. A `seed` makes the result a function of the request alone."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    min_p: float = 0.0  # keep tokens at least this share as likely as the best one
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    logprobs: int | None = None  # None: no report; n: the chosen token and the n most likely ones
    ignore_eos: bool = False


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the loaded engine can hold."""

    max_model_len: int  # tokens of prompt and output together, per sequence
    block_size: int  # tokens per KV block
    num_blocks: int
    max_sequences: int  # rows of one step
    vocab_size: int


class EngineOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the engine process is started with: its argument, as JSON. What is None is found out by looking."""

    path: str  # of the checkpoint
    max_model_len: int | None = None  # tokens; None: the model's context, or what the cache can hold
    kv_bytes: int | None = None  # None: a share of the memory that this process may use
    block_size: int = 16
    max_sequences: int = 32
    token_budget: int = 256  # tokens of one step: bounds how long running sequences wait for a prompt's chunk
    threads: int | None = None


# --- commands: runtime -> engine


class AddRequest(msgspec.Struct, frozen=True, omit_defaults=True, tag="add"):
    id: int
    prompt_token_ids: list[int]
    sampling: SamplingParams
    max_tokens: int
    stop_token_ids: list[int] = []
    priority: Priority = "interactive"
    deadline_s: float | None = None  # CLOCK_MONOTONIC, which all processes of a machine share


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    id: int


class GetStats(msgspec.Struct, frozen=True, tag="stats"):
    pass


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    pass


Command = AddRequest | Cancel | GetStats | Shutdown


# --- events: engine -> runtime


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    detail: str


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    limits: Limits


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The model cannot be served; the process exits after this."""

    message: str


class TopLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of the model's own distribution, before temperature, penalties, bias and truncation."""

    chosen: float
    token_ids: list[int]
    logprobs: list[float]


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One sampled token of one sequence."""

    id: int  # of the request
    token_id: int
    finish_reason: FinishReason | None = None
    logprobs: TopLogprobs | None = None


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """A request ended without a normal finish; `code` is that of a class in `errors.py`."""

    id: int
    code: str
    message: str


class Stats(msgspec.Struct, frozen=True, omit_defaults=True, tag="stats"):
    """Counters since the start (`_total`) and gauges of this moment."""

    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_total: int = 0
    prompt_tokens_total: int = 0  # computed, recomputation after a preemption included
    output_tokens_total: int = 0
    steps_total: int = 0
    preemptions_total: int = 0
    nonfinite_total: int = 0  # requests failed because their logits were not finite
    finished_total: int = 0
    busy_s_total: float = 0.0  # time inside steps


class StepDone(msgspec.Struct, frozen=True, omit_defaults=True, tag="step"):
    """Everything that one step produced, for all requests, with the gauges after it."""

    tokens: list[Token] = []
    rejected: list[Rejected] = []
    stats: Stats = Stats()


Event = Loading | Loaded | Failed | StepDone | Stats

_encoder = msgspec.msgpack.Encoder()


def frame(message: Command | Event) -> bytes:
    """One message, ready to be written to the socket."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into frame bodies. Feed it what arrives; it keeps the incomplete tail.

    Raises ValueError for a frame above `MAX_FRAME_BYTES`: the stream cannot be trusted after that.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes exceeds the limit of {MAX_FRAME_BYTES}")
            end = start + _LENGTH.size + size
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return bodies
