"""One worker process as the replica sees it: its start, its conversation, its slots, and how it ended.

`workers.WorkerRuntime` owns them. A process belongs to the thread that calls `run`, which starts it and outlives it:
the kernel ends a worker when the thread that started it is gone. Everything else may be called by any thread, under
the owner's lock where it says so.
"""

from __future__ import annotations

import array
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import steelyard
from steelyard.contracts.worker import (
    Failed,
    FromSlot,
    FromWorker,
    Message,
    OpenSlot,
    Progress,
    Ready,
    Start,
    UseThreads,
    Warmed,
    WarmUp,
)
from steelyard.policy.hung_worker import RunningCall
from steelyard.runtimes.base import Caller
from steelyard.runtimes.exporting import Exporting
from steelyard.runtimes.process_tree import kill_tree
from steelyard.worker.frames import BrokenFrame, Channel

_ENCODE = msgspec.msgpack.Encoder().encode
_FROM_SLOT: Callable[[bytes], FromSlot] = msgspec.msgpack.Decoder(FromSlot).decode
_FROM_WORKER: Callable[[bytes], FromWorker] = msgspec.msgpack.Decoder(FromWorker).decode
_END_TIMEOUT_S = 2.0
_STATUS_TIMEOUT_S = 1.0
_HUNG = "because it hung"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_NOT_INHERITED = {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"}


class NotBegun(Exception):
    """The process was gone before it got the request: it may go to another."""


class SlotEnded(Exception):
    """The connection ended in the middle of a request."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker. `extra_path`: for its PYTHONPATH; `environment` is the user's; `labels` go into
    its log lines."""

    python: Path
    extra_path: tuple[Path, ...]
    environment: Mapping[str, str]
    model: Path
    labels: Mapping[str, str] = field(default_factory=dict)


class Slot:
    """The replica's end of one connection; one thread at a time. `callers`, by their place in the message: those who
    wait for what runs on it now. `heard_s`: when that was sent, or the worker last said something about it."""

    def __init__(self, connection: socket.socket) -> None:
        self.channel = Channel(connection)
        self.callers: dict[int, Caller] = {}
        self.heard_s = 0.0
        self._called = False  # by somebody who may leave

    def begin(self, callers: Sequence[Caller]) -> None:
        self.callers = dict(enumerate(callers))
        self.heard_s = time.monotonic()
        self._called = bool(callers)

    def call(self, now_s: float) -> RunningCall:
        """What runs on it, as any thread sees it."""
        callers = list(self.callers.values())
        ends_s = [caller.unwanted_s(now_s) for caller in callers]
        unwanted_s = min((end_s for end_s in ends_s if end_s is not None), default=None)
        if self._called and not callers:  # all are answered
            unwanted_s = self.heard_s
        return RunningCall(unwanted_s, self.heard_s, self._read())

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Raises NotBegun."""
        try:
            self.channel.send(_ENCODE(message), payload)
        except OSError:
            raise NotBegun from None

    def receive(self) -> tuple[FromSlot, bytes]:
        """Raises SlotEnded."""
        try:
            frame = self.channel.receive()
            if frame is None:
                raise SlotEnded
            self.heard_s = time.monotonic()
            return _FROM_SLOT(frame[0]), frame[1]
        except (OSError, BrokenFrame, msgspec.MsgspecError):
            raise SlotEnded from None

    def _read(self) -> bool:
        """Whether the worker has read all that was sent. True where the system cannot tell."""
        unread = array.array("i", [0])
        with suppress(OSError, ValueError):
            fcntl.ioctl(self.channel.socket, termios.TIOCOUTQ, unread)
        return not unread[0]


class WorkerProcess:
    """`ready` is None until the model is loaded; `failed` is set if it cannot be. `busy`: slots in use. `proven`: it
    has answered something. `suspect`: some call is overdue. `hung`: it is being ended for that all of them were."""

    def __init__(self, launch: Launch, threads: int, unprivileged: bool, exporting: Exporting | None = None) -> None:
        self.ready: Ready | None = None
        self.failed: Failed | None = None
        self.busy = 0
        self.proven = self.suspect = self.hung = False
        self.retired = False  # set by the owner: it ends when it has finished what it has
        self.detail = "starting the model's process"
        self._launch = launch
        self._threads = threads
        self._unprivileged = unprivileged
        self.exporting = exporting
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._slots: set[Slot] = set()
        self._running: set[Slot] = set()
        self._idle: list[Slot] = []
        self._ending = False

    def run(self, on_ready: Callable[[], None]) -> str:
        """Start, load, call `on_ready`, wait for the end; says how it ended. Raises OSError when it cannot start."""
        folder = Path(tempfile.mkdtemp(prefix="steelyard-worker-"))
        try:
            with self._spawn(folder) as process:
                if self._ending:
                    process.kill()
                self._load(folder)
                if self.ready is not None:
                    on_ready()
                return self._wait()
        finally:
            if self.exporting is not None and self.ready is None:  # nobody else has it
                self.exporting.close()
            shutil.rmtree(folder, ignore_errors=True)

    def take(self, callers: Sequence[Caller] = ()) -> Slot:
        """An idle slot or a new one; under the owner's lock. Raises NotBegun."""
        slot = self._idle.pop() if self._idle else self._open()
        slot.begin(callers)
        self._running.add(slot)
        self.busy += 1
        return slot

    def calls(self, now_s: float) -> list[RunningCall]:
        """What runs in it; under the owner's lock."""
        return [slot.call(now_s) for slot in self._running]

    def _open(self) -> Slot:
        ours, theirs = socket.socketpair()
        slot = Slot(ours)
        with theirs:
            try:
                self._send(OpenSlot(), theirs.fileno())
            except OSError:
                ours.close()
                raise NotBegun from None
        self._slots.add(slot)
        return slot

    def give_back(self, slot: Slot, usable: bool) -> None:
        """Under the owner's lock. A slot that is not usable is closed, which ends what runs on it."""
        self.busy -= 1
        self._running.discard(slot)
        slot.callers = {}
        if usable and not self._ending:
            self._idle.append(slot)
        else:
            self._slots.discard(slot)
            slot.channel.close()

    def leave(self) -> None:
        """End when idle, without waiting for it."""
        self._ending = True
        if self._control is not None:
            self._control.end()

    def warm_up(self) -> None:
        """Before it serves, as its predecessor did; what goes wrong then shows soon enough."""
        try:
            slot = self.take()
        except NotBegun:
            return
        usable = False
        with suppress(NotBegun, SlotEnded):
            slot.send(WarmUp())
            message, _ = slot.receive()
            self.proven = message == Warmed(True)
            usable = True
        self.give_back(slot, usable)

    def kill(self) -> None:
        """It hangs: end it and all that it has started, and what runs in it, even if the system is slow to end it."""
        if self._process is None or self._process.poll() is not None:
            return
        kill_tree(self._process.pid)
        for slot in list(self._slots):
            slot.channel.end()

    def use_threads(self, count: int) -> None:
        """Of native libraries, in one call; under the owner's lock."""
        with suppress(OSError):
            self._send(UseThreads(count))

    def how_it_ended(self) -> str | None:
        """«by SIGSEGV», «with status 3»; None while it lives."""
        if self.hung:
            return _HUNG
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return _ending(self._process.wait(_STATUS_TIMEOUT_S))
        return None

    def memory_bytes(self) -> int:
        """Resident, 0 when it is gone."""
        with suppress(OSError, AttributeError, IndexError, ValueError):
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def end(self) -> None:
        """End it: at once if it is idle, else by force. `run` returns then. Safe to call twice."""
        self.leave()
        if self._process is not None:
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _spawn(self, folder: Path) -> subprocess.Popen[bytes]:
        folder.chmod(0o711)
        (folder / "home").mkdir(0o700)
        ours, theirs = socket.socketpair()
        self._control = Channel(ours)
        exporting = self.exporting
        with theirs:
            self._process = subprocess.Popen(
                [str(self._launch.python), "-m", "steelyard.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment_of(self._launch, folder, self._threads),
                pass_fds=[theirs.fileno(), *([exporting.write_end] if exporting is not None else [])],
            )
        return self._process

    def _load(self, folder: Path) -> None:
        assert self._control is not None
        home = folder / "home"
        labels = dict(self._launch.labels)
        export = None
        if self.exporting is not None:
            export = self.exporting.order(home)
            self.exporting.begun()
        start = Start(str(self._launch.model), self._unprivileged, str(home), os.getpid(), labels, export)
        try:
            self._control.send(_ENCODE(start))
            while (frame := self._control.receive()) is not None:
                message = _FROM_WORKER(frame[0])
                if isinstance(message, Progress):
                    self.detail = message.detail
                elif isinstance(message, Ready):
                    self.ready = message
                    return
                else:
                    self.failed = message
                    return
        except (OSError, BrokenFrame, msgspec.MsgspecError):
            self._control.end()  # its status tells more than the connection

    def _wait(self) -> str:
        """Until the process has ended; then nobody may wait for it any longer."""
        assert self._process is not None
        assert self._control is not None
        if self.ready is None:
            self._control.end()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_S)
            self._process.kill()
        status = self._process.wait()
        self._ending = True
        for slot in list(self._slots):  # a child of the model's may hold their other ends open
            slot.channel.end()
        self._control.close()
        return _HUNG if self.hung else _ending(status)

    def _send(self, message: Message, descriptor: int | None = None) -> None:
        assert self._control is not None
        if descriptor is None:
            self._control.send(_ENCODE(message))
            return
        self._control.send_with(_ENCODE(message), descriptor)


def environment_of(launch: Launch, folder: Path, threads: int) -> dict[str, str]:
    """Variables for a process in the model's environment: ours without the platform's settings and secrets, and the
    user's on top. `folder` is scratch that must outlive the process."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STEELYARD_") and name not in _NOT_INHERITED
    }
    path = [str(place) for place in launch.extra_path]
    if launch.python != Path(sys.executable):
        (folder / "path").mkdir(0o755)
        (folder / "path" / "steelyard").symlink_to(Path(steelyard.__file__).resolve().parent)
        path.insert(0, str(folder / "path"))
    elif "PYTHONPATH" in os.environ:
        path.append(os.environ["PYTHONPATH"])
    if path:
        kept["PYTHONPATH"] = os.pathsep.join(path)
    defaults = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
    counts = dict.fromkeys(_THREADS, str(threads))
    return {**defaults, **kept, **counts, **launch.environment, "PYTHONSAFEPATH": "1"}


def _ending(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    with suppress(ValueError):
        name = signal.Signals(-status).name
        return f"by {name} (out of memory?)" if name == "SIGKILL" else f"by {name}"
    return f"by signal {-status}"
