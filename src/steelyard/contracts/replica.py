"""What a replica is told at its start, and what it says of itself.

The substrate writes `<replicas_dir>/<id>/spec.json` (ReplicaSpec) and starts `python -m steelyard.replica <dir>`.
The replica listens on `spec.address` at once and answers, besides the model's own paths:

- `GET /ready`: 200 when it can serve, else 503; body ReplicaStatus.
- `GET /health`: 200 while the process lives and its loop turns.
- `GET /load`: LoadReport. `GET /metrics`: OpenMetrics.

A replica that cannot start writes `<dir>/failure.json` (Failure) and exits with status 3.
SIGTERM drains: new requests are refused with 503, running ones finish within `drain_timeout_s`, then it exits 0.
End-of-file on the lifeline does the same.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FAILED_EXIT_STATUS = 3
CLIENT_GONE = 499  # status under which both count a request whose client left
PRIORITY_HEADER = b"x-steelyard-priority"
CALIBRATES = b"calibration"  # a priority that no router sends: as low as `batch`, and not counted as a user's request
DRAINING_HEADER = (b"x-steelyard-draining", b"1")  # on a 503: nothing was begun, so take the request elsewhere
SPEC_FILE = "spec.json"
FAILURE_FILE = "failure.json"
PROCESS_FILE = "process.json"
LOG_FILE = "log.txt"


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    endpoint: str
    endpoint_id: str = ""  # two endpoints may bear one name, one after the other
    served_entity: str
    address: str
    model_uri: str  # what the user gave: a path, models:/…, runs:/…, a Hugging Face folder, a .gguf
    model_version: str | None = None
    environment_vars: dict[str, str] = {}
    max_concurrency: int | None = None  # None: the runtime's own default
    drain_timeout_s: float = 30.0


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    state: Literal["starting", "ready", "draining"]
    detail: str = ""  # what it is doing: "loading weights", "predicting the input example"
    runtime: str | None = None  # "pyfunc", "onnx", "llm"
    reason: str = ""  # why this runtime: what was tried, and how it was proven
    task: str | None = None  # "llm/v1/chat" or None
    max_concurrency: int = 1
    lanes: int | None = None  # calls of the model at once; None: as many as requests
    context_length: int | None = None  # tokens of prompt and output; None: it generates nothing, or does not know yet
    building: bool = False  # while starting: the model's environment is being built, which has a time limit of its own


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A gauge that the replica cannot know is None, never zero."""

    in_flight: int
    queue_depth: int
    max_concurrency: int
    completed_total: int
    last_completion_age_s: float | None  # None: nothing completed yet
    kv_occupancy: float | None = None  # 0..1, LLM only
    output_tokens_total: int | None = None  # LLM only
    user_requests_total: int | None = None  # that came, whatever became of them; without those of a calibration
    user_in_flight: int | None = None  # of these


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a replica could not start; `message` is one sentence for the user."""

    code: str
    message: str


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a process group across restarts of control and of the machine, where pids are used again."""

    pid: int
    start_ticks: int  # field 22 of /proc/<pid>/stat: since the boot
    boot_id: str = ""  # /proc/sys/kernel/random/boot_id
