"""What a replica and a model's worker process say to each other.

Frames on Unix stream sockets: how many bytes of header and of payload (two big-endian u32), a header (one tagged
struct from here, as MessagePack) and the payload, raw. One control connection per worker says what to load and hands
over one connection per slot; on a slot one request follows another, each with its own answer. The end of a connection
is the end of what runs on it.
"""

from __future__ import annotations

import struct

import msgspec

PREFIX = struct.Struct("!II")  # bytes of header, bytes of payload
MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 31
EXPORTED = b"."


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """Base of all headers."""


# on the control connection, from the replica


class ExportBeside(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Convert the model for the native runtimes into a folder that is to be made, and write EXPORTED at the end."""

    folder: str
    descriptor: int  # of a pipe, inherited
    tool_path: str  # folders with packages that only convert


class Start(Message, frozen=True):
    """First of all: load the model at `path`. With `unprivileged`, as nobody where the files allow it."""

    path: str
    unprivileged: bool
    home: str  # a folder for the model's process alone
    parent_pid: int
    labels: dict[str, str]  # for the lines of its log: endpoint, replica
    export: ExportBeside | None = None  # when the model is loaded


class OpenSlot(Message, frozen=True):
    """Serve the connection whose descriptor comes with this."""


class UseThreads(Message, frozen=True):
    """How many threads native libraries may use for one call from now on."""

    count: int


# on the control connection, from the worker


class Progress(Message, frozen=True):
    detail: str  # "loading the model"


class Ready(Message, frozen=True):
    variants: tuple[str, ...]
    streams: bool
    unprivileged: bool  # whether it runs as nobody
    seconds: float  # to load


class Failed(Message, frozen=True):
    """The model cannot be loaded; `message` is one sentence. `forbidden`: for want of a permission, it seems."""

    message: str
    forbidden: bool


# on a slot, from the replica


class Ask(Message, frozen=True):
    """A query whose body is the payload; answered by Reply or Fault, with `stream` by Pieces and then Reply or Fault.

    Most fields are those of `protocols.query.Query`.
    """

    dialect: str
    media: str
    request_id: str
    model: str
    version: str
    json_bytes: int | None
    variant: str  # the way to predict: "pyfunc", "frame", "native"
    stream: bool
    joins: bool = False  # whether such queries may share calls of the model, so that `Reply.rows` is wanted


class AskTogether(Message, frozen=True):
    """Queries that may share calls of the model; their bodies, each of so many bytes, are the payload, one after the
    other. Each is answered by Part or PartFault as soon as it can be, in any order; at the end comes Together."""

    asks: tuple[Ask, ...]
    sizes: tuple[int, ...]
    most_rows: int  # in one call


class Compare(Message, frozen=True):
    """Predict the payload's rows in a given way; answered by Compared, or by Fault where there is no such way."""

    variant: str


class WarmUp(Message, frozen=True):
    """Predict the model's own example; answered by Warmed or Fault."""


# on a slot, from the worker


class Reply(Message, frozen=True):
    """An answer whose body is the payload. `wall_s` is what its thread took, and `cpu_s` how much of that it
    computed, or could have with a core free."""

    content_type: str
    headers: tuple[tuple[str, str], ...]
    cpu_s: float
    wall_s: float
    rows: int = 0  # of a query that could have shared its call; 0 of others
    given_rows: int = 0  # of any query's input; 0: it has none, or they were not counted


class Fault(Message, frozen=True):
    """An error of `errors.py`, by the name of its class."""

    name: str
    message: str
    param: str | None
    retry_after_s: float | None
    cpu_s: float
    wall_s: float


class Part(Message, frozen=True):
    """The answer to one query of AskTogether, by its place there; the body is the payload."""

    place: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    given_rows: int = 0  # as in Reply


class PartFault(Message, frozen=True):
    """The same for one that failed."""

    place: int
    fault: Fault


class Together(Message, frozen=True):
    """All queries of AskTogether are answered: in so many calls, of so many rows; the times as in Reply.

    `apart`: why this model's requests must not share calls any more; empty as long as they may.
    """

    calls: int
    rows: int
    cpu_s: float
    wall_s: float
    apart: str = ""


class Piece(Message, frozen=True):
    """One piece of a stream, rendered: the payload."""


class Warmed(Message, frozen=True):
    example: bool  # False: the model has none


class Compared(Message, frozen=True):
    """What a way of predicting returned for some rows, or which error: what a proof compares.

    The payload is the output as `protocols.mlflow.to_plain` makes it, as MessagePack, where NaN and the infinities
    survive and integers differ from floats; empty beside an error. `float_bits`: of its widest floating-point part, 32
    or 64; None when it has none. `error` is the name of a class of `errors.py`.
    """

    float_bits: int | None
    error: str | None


FromReplica = Start | OpenSlot | UseThreads
FromWorker = Progress | Ready | Failed
OnSlot = Ask | AskTogether | Compare | WarmUp
FromSlot = Reply | Piece | Fault | Part | PartFault | Together | Warmed | Compared

PRIMARY_VARIANT = "pyfunc"  # MLflow's own predict, its enforcement included: right by definition
