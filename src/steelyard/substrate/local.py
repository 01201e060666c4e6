"""Replicas as processes on this machine: one folder and one process group each.

Everything that must survive control is in the folder (`<replicas_dir>/<id>`): what it was told to run, which process
it is, why it failed, its log. A new control therefore finds what an old one left. Methods block briefly on disk and
/proc: call them from a thread. One control calls them, one at a time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from steelyard.contracts.replica import (
    FAILURE_FILE,
    LOG_FILE,
    PROCESS_FILE,
    SPEC_FILE,
    Failure,
    ProcessRecord,
    ReplicaSpec,
    ReplicaStatus,
)
from steelyard.observe.machine import usable_cores
from steelyard.substrate import logfiles, processes

STATUS_FILE = "status.json"  # written by control when the replica was first ready
RETIRED_PER_ENTITY = 3
RETIRED_TOTAL = 50
_SECRET_VARIABLES = frozenset({"STEELYARD_STORE_URL", "STEELYARD_TOKEN"})
# Numeric libraries count the machine's cores instead and start as many threads, which then fight for a small share.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_RETIRED = ".retired"
Document = TypeVar("Document")


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A replica folder as it is now. `pid` is None when no process was ever recorded or found for it."""

    spec: ReplicaSpec
    alive: bool
    pid: int | None = None
    ready: ReplicaStatus | None = None  # what it said when it was first ready; None: never ready
    failure: str | None = None  # of a dead one: its own words
    death: str = ""  # of a dead one: how it ended, then its last lines


class LocalSubstrate:
    """`command` is followed by the replica's folder; `lifeline_fd` is handed on to each replica (-1: none)."""

    def __init__(
        self,
        replicas_dir: Path,
        *,
        command: Sequence[str] = (sys.executable, "-m", "steelyard.replica"),
        lifeline_fd: int = -1,
        environment: Mapping[str, str] | None = None,
        log_limit_bytes: int = logfiles.LOG_LIMIT_BYTES,
    ) -> None:
        self._dir = replicas_dir
        self._command = list(command)
        self._lifeline_fd = lifeline_fd
        self._environment = dict(os.environ if environment is None else environment)
        self._log_limit_bytes = log_limit_bytes
        self._cores = usable_cores()
        self._ends: dict[int, str] = {}  # how our own children ended, by pid

    def start(self, spec: ReplicaSpec) -> int:
        """Starts the replica in a session of its own and returns its pid. Raises OSError when that is impossible."""
        folder = self._dir / spec.id
        folder.mkdir(mode=0o700, parents=True)
        try:
            return self._start_in(folder, spec)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _start_in(self, folder: Path, spec: ReplicaSpec) -> int:
        _write(folder / SPEC_FILE, spec)
        with (folder / LOG_FILE).open("ab") as log:
            process = subprocess.Popen(
                [*self._command, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment_of(spec),
                pass_fds=[self._lifeline_fd] if self._lifeline_fd >= 0 else [],
                start_new_session=True,
            )
        try:
            _write(folder / PROCESS_FILE, processes.record_of_child(process.pid))
        except OSError:  # a full disk: what cannot be found again must not run
            process.kill()
            process.wait()
            raise
        process.returncode = 0  # we reap it ourselves; the object must not
        return process.pid

    def observe(self) -> list[FoundReplica]:
        """All that are not put away, dead or alive. Whatever a dead replica left in its process group is killed."""
        return [self._look(folder, spec) for folder, spec in self._folders(self._dir)]

    def terminate(self, replica_id: str) -> None:
        """Asks it to finish what it does and end."""
        record = _read(self._dir / replica_id / PROCESS_FILE, ProcessRecord)
        if record is not None:
            processes.send_signal(record, signal.SIGTERM)

    def kill(self, replica_id: str) -> None:
        """Ends its whole process group at once."""
        record = _read(self._dir / replica_id / PROCESS_FILE, ProcessRecord)
        if record is not None:
            processes.kill_group(record)

    def note_ready(self, replica_id: str, status: ReplicaStatus) -> None:
        """Remembers, for a control that comes later, that it was ready."""
        with suppress(FileNotFoundError):
            _write(self._dir / replica_id / STATUS_FILE, status)

    def retire(self, replica_id: str) -> None:
        """Puts a dead replica's folder away, where its log can be read until newer ones push it out."""
        folder = self._dir / replica_id
        spec = _read(folder / SPEC_FILE, ReplicaSpec)
        if spec is not None and spec.address.startswith("unix:"):
            Path(spec.address.removeprefix("unix:")).unlink(missing_ok=True)
        retired = self._dir / _RETIRED
        retired.mkdir(mode=0o700, exist_ok=True)
        if folder.exists():
            os.utime(folder)
            folder.rename(retired / replica_id)
        self._prune()

    def bound_logs(self) -> None:
        """Keeps each log within its limit; call it every few seconds."""
        for folder, _ in self._folders(self._dir):
            logfiles.bound(folder / LOG_FILE, self._log_limit_bytes)

    def log_files(self, endpoint_id: str, served_entity: str) -> list[Path]:
        """Logs of the entity's replicas, running and retired, the last started first."""
        mine = [
            folder
            for place in (self._dir, self._dir / _RETIRED)
            for folder, spec in self._folders(place)
            if spec.endpoint_id == endpoint_id and spec.served_entity == served_entity
        ]
        mine.sort(key=lambda folder: _modified_s(folder / SPEC_FILE), reverse=True)
        return [folder / LOG_FILE for folder in mine]

    def record_files(self) -> list[Path]:
        """Where the processes of all replicas that are not put away are recorded."""
        return [folder / PROCESS_FILE for folder, _ in self._folders(self._dir)]

    def _look(self, folder: Path, spec: ReplicaSpec) -> FoundReplica:
        record = _read(folder / PROCESS_FILE, ProcessRecord)
        if record is None:
            # A control killed between starting a process and recording it leaves a process that only /proc knows.
            record = processes.find_by_argument(str(folder))
            if record is not None:
                _write(folder / PROCESS_FILE, record)
        if record is not None and processes.is_alive(record):
            return FoundReplica(spec, True, record.pid, ready=_read(folder / STATUS_FILE, ReplicaStatus))
        if record is not None:
            processes.kill_group(record)  # before reaping: until then nobody else can get this number
            end = processes.reap(record.pid)
            if end is not None:
                self._ends[record.pid] = end
        failure = _read(folder / FAILURE_FILE, Failure)
        how = self._ends.pop(record.pid, "died") if record is not None else "died at once"
        lines = logfiles.last_lines(folder / LOG_FILE)
        return FoundReplica(
            spec,
            alive=False,
            pid=record.pid if record else None,
            failure=failure.message if failure else None,
            death=f"{how}; its last lines:\n{lines}" if lines else how,
        )

    def _environment_of(self, spec: ReplicaSpec) -> dict[str, str]:
        inherited = {name: value for name, value in self._environment.items() if name not in _SECRET_VARIABLES}
        inherited.update(spec.environment_vars)
        for name in _THREAD_VARIABLES:
            inherited.setdefault(name, str(self._cores))
        inherited["STEELYARD_LIFELINE_FD"] = str(self._lifeline_fd)
        inherited["PYTHONUNBUFFERED"] = "1"  # what a model prints last before it dies is what its owner needs
        return inherited

    def _folders(self, place: Path) -> Iterator[tuple[Path, ReplicaSpec]]:
        try:
            names = sorted(os.listdir(place))
        except FileNotFoundError:
            return
        for name in names:
            spec = _read(place / name / SPEC_FILE, ReplicaSpec)
            if spec is not None and spec.id == name:
                yield place / name, spec

    def _prune(self) -> None:
        kept: dict[tuple[str, str], int] = {}
        retired = sorted(self._folders(self._dir / _RETIRED), key=lambda item: _modified_s(item[0]), reverse=True)
        for number, (folder, spec) in enumerate(retired):
            entity = (spec.endpoint_id, spec.served_entity)
            kept[entity] = kept.get(entity, 0) + 1
            if kept[entity] > RETIRED_PER_ENTITY or number >= RETIRED_TOTAL:
                shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, value: object) -> None:
    """In one step, so that nobody ever reads half a file."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_bytes(msgspec.json.encode(value))
    draft.chmod(0o600)
    draft.replace(path)


def _read(path: Path, kind: type[Document]) -> Document | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
