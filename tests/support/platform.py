"""A whole platform as a user starts it: the real command `steelyard up` in a process of its own."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

READY_LINE = "Ctrl-C stops everything"  # the last line that `up` prints when all has settled
_libc = ctypes.CDLL(None)
_SET_PARENT_DEATH_SIGNAL = 1


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with_parent() -> None:
    """A test run that is killed has no time to stop its platform: let the kernel send SIGTERM then."""
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


class Platform:
    """`steelyard up` on its own home and port. `with Platform().start(home, "--samples"):` stops it at the end."""

    home: Path
    port: int
    process: subprocess.Popen[bytes]

    def start(self, home: Path, *args: str, port: int = 0, timeout_s: float = 240) -> Self:
        """Start it and return once it says that it is ready, with the samples if `args` ask for them.

        May be called again after the process has ended: the home keeps its endpoints and its token.
        """
        self.home, self.port = home, port or free_port()
        home.mkdir(parents=True, exist_ok=True)
        self._output = home.with_name(f"{home.name}-{time.monotonic_ns()}.out")
        command = [sys.executable, "-m", "steelyard.cli.main", "up", "--home", str(home), "--port", str(self.port)]
        with self._output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, *args],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={"STEELYARD_AUTO_CALIBRATION": "0", **os.environ, "STEELYARD_HOME": str(home)},
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (one system call of a library that is loaded already)
            )
        self._wait_ready(timeout_s)
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The token that the first start created; empty without authentication."""
        return str(json.loads((self.home / "client.json").read_text())["token"] or "")

    @property
    def output(self) -> str:
        """All that the command has printed, both streams."""
        return self._output.read_text(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Ask it to stop, as a service manager does, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """kill -9 of the supervisor alone; its children must notice by themselves."""
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while READY_LINE not in self.output:
            if self.process.poll() is not None:
                raise AssertionError(f"steelyard up ended with {self.process.returncode}:\n{self.output}")
            if time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"steelyard up was not ready after {timeout_s} s:\n{self.output}")
            time.sleep(0.05)
