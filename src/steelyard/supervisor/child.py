"""One process of the platform, kept alive: started again, faster or slower, whenever it ends untold.

Owned by `platform.py`. It knows nothing of what the process does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from steelyard.substrate import logfiles
from steelyard.supervisor.journal import Journal

BACKOFF_FIRST_S = 0.1
BACKOFF_LIMIT_S = 10.0
HEALTHY_AFTER_S = 30.0
MISCONFIGURED_STATUS = 2


class Child:
    """Runs in a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        log_path: Path,
        note_pid: Callable[[str, int], None],
        journal: Journal,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.ended_early = 0  # times in a row that it ended before it was healthy
        self.is_misconfigured = False  # it said that starting it again would not help
        self._command = list(command)
        self._environment = dict(environment)
        self._descriptors = list(descriptors)
        self._note_pid = note_pid
        self._journal = journal
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def run(self) -> None:
        """Keeps it alive until `stop` or cancellation; a cancelled run leaves the process to `stop`."""
        wait_s = BACKOFF_FIRST_S
        while not self._stopping:
            started_s = time.monotonic()
            status = await self._run_once()
            if self._stopping:
                return
            if time.monotonic() - started_s >= HEALTHY_AFTER_S:
                wait_s, self.ended_early = BACKOFF_FIRST_S, 0
            self.ended_early += 1
            self.is_misconfigured = status == MISCONFIGURED_STATUS
            self._journal.note("process_ended", name=self.name, status=status, restart_in_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(BACKOFF_LIMIT_S, wait_s * 2)

    async def _run_once(self) -> int | str:
        try:
            with self.log_path.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    pass_fds=self._descriptors,
                    start_new_session=True,
                )
        except OSError as error:
            return str(error)
        self._note_pid(self.name, self._process.pid)
        return await self._process.wait()

    async def stop(self, grace_s: float, hurry: asyncio.Event) -> None:
        """SIGTERM, and SIGKILL for its group when the grace is over or somebody is in a hurry."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        ended, hurried = asyncio.ensure_future(process.wait()), asyncio.ensure_future(hurry.wait())
        try:
            await asyncio.wait({ended, hurried}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        await ended

    def last_words(self) -> str:
        return logfiles.last_lines(self.log_path, 3) or "it said nothing"
