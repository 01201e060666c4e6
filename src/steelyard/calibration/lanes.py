"""A closed loop on one replica: so many requests under way at once, each followed by the next as soon as it ends.

`runner.py` says what to draw requests from and how many; `progress.py` hears what came. One event loop, callbacks
only: for cheap requests the load generator must cost less than the replica that it loads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

import msgspec

from steelyard.calibration.progress import Counted, Progress, Sent
from steelyard.calibration.prompts import Prompts
from steelyard.calibration.rows import PATH as ROWS_PATH
from steelyard.calibration.rows import Rows
from steelyard.contracts.replica import CALIBRATES, PRIORITY_HEADER
from steelyard.policy.calibration_shapes import Mix, Shape
from steelyard.wire.client import Pool, ResponseSink, UpstreamConnection, UpstreamFailure
from steelyard.wire.fetch import encode_head
from steelyard.wire.request import Headers

HEADERS = [(b"content-type", b"application/json"), (PRIORITY_HEADER, CALIBRATES)]  # of every request to the model
_HOST = (b"host", b"steelyard")
_EVENT = b"data: "
_TAIL_BYTES = 4096  # of a stream, which hold its last events
_PAUSE_S = 0.05  # after a failure, or a replica that refuses would be asked a thousand times a second


class Lanes:
    """`bodies` says which kind of request it is. Needs a running loop; `close` gives up what is under way."""

    def __init__(self, address: str, bodies: Prompts | Rows, progress: Progress, seed: int) -> None:
        self._pool = Pool(address, max_idle=4096)
        self._bodies = bodies
        self._progress = progress
        self._random = Random(seed)
        self._mix: Mix | None = None
        self._wanted = 0
        self._running: set[_Answer] = set()
        self._loop = asyncio.get_running_loop()
        self._heads: dict[int, bytes] = {}
        self.changed = asyncio.Event()  # something was answered, or failed
        self.spoke = asyncio.Event()  # a first token came, or an answer of rows

    def load(self, mix: Mix, concurrency: int) -> None:
        """From now on so many of this mix. What has not begun to answer is given up, and what is too many."""
        self._mix, self._wanted = mix, concurrency
        for answer in list(self._running):
            if not answer.begun:
                self._give_up(answer)
        for answer in sorted(self._running, key=lambda answer: answer.sent.sent_s)[concurrency:]:
            self._give_up(answer)
        self._fill()

    def close(self) -> None:
        self._wanted = 0
        for answer in list(self._running):
            self._give_up(answer)
        self._pool.close()

    def _give_up(self, answer: _Answer) -> None:
        self._running.discard(answer)
        self._progress.given_up(answer.sent)
        answer.cancel()

    def _fill(self) -> None:
        while self._mix is not None and len(self._running) < self._wanted:
            self._send(self._mix.draw(self._random))

    def _send(self, shape: Shape) -> None:
        if isinstance(self._bodies, Prompts):
            body, expected, words = self._bodies.body(shape)
            path = self._bodies.path
        else:
            rows = max(1, min(shape.rows, self._bodies.max_rows))
            body, expected, words, path = self._bodies.body(rows), Shape(rows=rows), 0, ROWS_PATH
        head = self._heads.get(len(body))
        if head is None:
            if len(self._heads) > 1000:
                self._heads.clear()
            head = self._heads[len(body)] = encode_head("POST", path, [_HOST, *HEADERS], len(body))
        sent = self._progress.sent(expected, time.monotonic())
        answer = _Answer(sent, words, self._said, self._ended)
        self._running.add(answer)
        answer.connection = self._pool.send(answer, head, body)

    def _said(self, answer: _Answer, count: int) -> None:
        """`count` tokens of output came."""
        first = answer.sent.first_s is None
        self._progress.tokens(answer.sent, max(1, count - first), time.monotonic())  # a stream opens with an empty one
        if first:
            self.spoke.set()

    def _ended(self, answer: _Answer, fault: str | None) -> None:
        self._running.discard(answer)
        now_s = time.monotonic()
        counted = None
        if fault is None and isinstance(self._bodies, Prompts):
            counted = counted_of(bytes(answer.tail))
            if counted is None:
                fault = "The replica's answer does not tell its tokens."
        if fault is not None:
            self._progress.failed_with(answer.sent, fault)
            self._loop.call_later(_PAUSE_S, self._fill)
        else:
            if counted is not None and isinstance(self._bodies, Prompts):
                self._bodies.learn(answer.words, counted.prompt_tokens)
            else:
                self.spoke.set()
            self._progress.answered(answer.sent, counted, now_s)
            self._fill()
        self.changed.set()


class _Answer(ResponseSink):
    """One request's answer as it comes. Events of a stream count as tokens until the last one tells the true count."""

    __slots__ = ("_ended", "_fault", "_said", "_status", "connection", "sent", "tail", "words")

    def __init__(
        self,
        sent: Sent,
        words: int,
        said: Callable[[_Answer, int], None],
        ended: Callable[[_Answer, str | None], None],
    ) -> None:
        self.sent = sent
        self.words = words
        self.tail = bytearray()
        self.connection: UpstreamConnection | None = None
        self._said = said
        self._ended = ended
        self._status = 0

    @property
    def begun(self) -> bool:
        """It has told something, so that work was done for it."""
        return self.sent.first_s is not None

    def cancel(self) -> None:
        if self.connection is not None:
            self.connection.cancel()

    def on_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._status = status
        self.tail += body[-_TAIL_BYTES:]
        if status == 200 and (count := body.count(_EVENT)):
            self._said(self, count)
        self.on_end()

    def on_head(self, status: int, headers: Headers, content_length: int | None) -> None:
        self._status = status

    def on_piece(self, data: bytes) -> None:
        self.tail += data[-_TAIL_BYTES:]
        if len(self.tail) > 2 * _TAIL_BYTES:
            del self.tail[:-_TAIL_BYTES]
        if self._status == 200 and (count := data.count(_EVENT)):
            self._said(self, count)

    def on_end(self) -> None:
        self._ended(self, None if self._status == 200 else _fault(self._status, bytes(self.tail)))

    def on_failure(self, failure: UpstreamFailure) -> None:
        self._ended(self, f"The connection to the replica failed ({failure.kind.value}).")


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: dict[str, int | None] | None = None


class _LastChunk(msgspec.Struct):
    usage: _Usage | None = None


def counted_of(tail: bytes) -> Counted | None:
    """From the last event with a usage in it, or a whole answer."""
    for event in reversed(tail.split(_EVENT)):
        if b'"usage"' not in event:
            continue
        try:
            usage = msgspec.json.decode(event.strip(), type=_LastChunk).usage
        except msgspec.MsgspecError:
            continue
        if usage is not None:
            cached = (usage.prompt_tokens_details or {}).get("cached_tokens") or 0
            return Counted(usage.prompt_tokens, usage.completion_tokens, cached)
    return None


class _Refusal(msgspec.Struct):
    message: str = ""


def _fault(status: int, body: bytes) -> str:
    try:
        message = msgspec.json.decode(body, type=_Refusal).message
    except msgspec.MsgspecError:
        message = ""
    return message or f"The replica answers with HTTP {status}."
