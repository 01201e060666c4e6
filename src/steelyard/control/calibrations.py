"""Calibrations of served entities: one at a time on this machine, each in a process of its own, their results kept.

The API begins, shows and stops them; `auto_calibration.py` does so for what is new. A result
lies in `settings.calibrations_dir`, one file per served entity, model version and hardware, and outlives control.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from steelyard.contracts.cost import (
    Calibration,
    CalibrationEnd,
    CalibrationLine,
    CalibrationProgress,
    CalibrationSpec,
    CalibrationState,
    StoredCalibration,
)
from steelyard.errors import Conflict
from steelyard.observe.logs import get_logger

MOST_LINE_BYTES = 16 * 1024 * 1024
_END_GRACE_S = 10.0
_ENDING_S = 0.02
_HANGS_S = 900.0  # without a word
_SECRETS = frozenset({"STEELYARD_STORE_URL", "STEELYARD_TOKEN"})
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Job:
    """The latest calibration of one served entity, as far as it has come."""

    endpoint_id: str
    served_entity: str
    state: CalibrationState
    done: int = 0
    left: int = 0
    detail: str = ""
    message: str = ""  # why it failed
    stopped: bool = False  # it was ended from outside
    result: Calibration | None = None


class Calibrations:
    """`run` works; `begin` asks for work and `stop` ends it. All on control's loop."""

    def __init__(
        self,
        folder: Path,
        command: tuple[str, ...] = (sys.executable, "-m", "steelyard.calibration"),
        on_kept: Callable[[StoredCalibration], object] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._command = command
        self._on_kept = on_kept  # called with each new result
        self._jobs: dict[tuple[str, str], Job] = {}
        self._wanted: tuple[str, CalibrationSpec] | None = None
        self._wake = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._log = get_logger()

    def begin(self, endpoint_id: str, spec: CalibrationSpec) -> Job:
        """Starts one. Raises Conflict while another is under way, since they would measure each other."""
        if self._wanted is not None:
            running = self._wanted[1]
            raise Conflict(f"A calibration of {running.endpoint!r} is running; they run one at a time.")
        self._wanted = (endpoint_id, spec)
        self._wake.set()
        return self._note(endpoint_id, spec.served_entity, Job(endpoint_id, spec.served_entity, "RUNNING"))

    @property
    def busy(self) -> bool:
        """One is under way, or about to be."""
        return self._wanted is not None

    def latest(self, endpoint_id: str, served_entity: str) -> Job | None:
        """Of this run of control."""
        return self._jobs.get((endpoint_id, served_entity))

    async def end_background(self) -> None:
        """Ends the one that is running if nobody asked for it, and returns when the next one may begin."""
        while self._wanted is not None and self._wanted[1].background:
            if self._work is not None:
                self._work.cancel()
            await asyncio.sleep(_ENDING_S)

    def stop(self, endpoint_id: str) -> bool:
        """Ends the one that is running, if it is this endpoint's."""
        if self._wanted is None or self._wanted[0] != endpoint_id:
            return False
        if self._work is not None:
            self._work.cancel()
        return True

    async def of(self, endpoint_id: str) -> list[Job]:
        """The latest per served entity: of this run of control, else what was kept."""
        kept = await asyncio.to_thread(read_kept, self._folder, endpoint_id)
        jobs = {
            result.served_entity: Job(endpoint_id, result.served_entity, "DONE", result=result)
            for result in sorted(kept, key=lambda result: result.created_ms)
        }
        for (owner, entity), job in self._jobs.items():
            if owner == endpoint_id:
                known = jobs.get(entity)
                jobs[entity] = replace(job, result=job.result or (known.result if known else None))
        return [jobs[name] for name in sorted(jobs)]

    async def run(self) -> None:
        """Works until cancelled; then no calibration is left."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._wanted is None:
                    continue
                endpoint_id, spec = self._wanted
                self._work = group.create_task(self._calibrate(endpoint_id, spec))
                await asyncio.wait([self._work])
                self._work = self._wanted = None

    async def _calibrate(self, endpoint_id: str, spec: CalibrationSpec) -> None:
        entity = spec.served_entity
        self._log.info("calibration_started", endpoint=spec.endpoint, served_entity=entity)
        end, stopped = CalibrationEnd(failure=""), True
        try:
            end = await self._follow(endpoint_id, spec)
            stopped = False
            if end.result is not None:
                stored = StoredCalibration(endpoint_id=endpoint_id, result=end.result)
                await asyncio.to_thread(keep, self._folder, stored)
                self._on_kept(stored)
        except OSError as error:
            stopped = False
            end = CalibrationEnd(failure=f"The calibration cannot be run or kept: {error.strerror or error}.")
        finally:
            failure = "The calibration was stopped." if stopped else end.failure or ""
            state: CalibrationState = "DONE" if end.result is not None else "FAILED"
            job = Job(endpoint_id, entity, state, message=failure, stopped=stopped, result=end.result)
            self._note(endpoint_id, entity, job)
            self._log.info("calibration_ended", endpoint=spec.endpoint, served_entity=entity, failure=failure)

    async def _follow(self, endpoint_id: str, spec: CalibrationSpec) -> CalibrationEnd:
        """Starts the process and hears it out. Its input is closed when nobody wants it any more, which ends it."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            msgspec.json.encode(spec).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name not in _SECRETS},
            limit=MOST_LINE_BYTES,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            while line := await asyncio.wait_for(process.stdout.readline(), _HANGS_S):
                said = msgspec.json.decode(line, type=CalibrationLine)
                if isinstance(said, CalibrationEnd):
                    return said
                self._note(endpoint_id, spec.served_entity, _progress_of(endpoint_id, spec, said))
        except TimeoutError:
            return CalibrationEnd(failure="The calibration stopped saying anything and was ended.")
        except (msgspec.MsgspecError, ValueError):
            return CalibrationEnd(failure="The calibration said something that control does not understand.")
        finally:
            await _end(process)
        return CalibrationEnd(failure=f"The calibration's process ended with status {process.returncode}.")

    def _note(self, endpoint_id: str, entity: str, job: Job) -> Job:
        self._jobs[endpoint_id, entity] = job
        return job


def _progress_of(endpoint_id: str, spec: CalibrationSpec, said: CalibrationProgress) -> Job:
    return Job(endpoint_id, spec.served_entity, "RUNNING", said.done, said.left, said.detail)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_GRACE_S)
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def keep(folder: Path, stored: StoredCalibration) -> Path:
    """Writes it in the place of an earlier one of the same model on the same hardware. Raises OSError."""
    result = stored.result
    identity = "\n".join(
        (stored.endpoint_id, result.model_uri, result.model_version or "", result.hardware.fingerprint)
    )
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    name = _UNSAFE.sub("_", f"{result.endpoint}.{result.served_entity}")[:100]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.{digest}.json"
    draft = path.with_suffix(f".{os.getpid()}.new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=1))
    draft.replace(path)
    return path


def read_kept(folder: Path, endpoint_id: str) -> list[Calibration]:
    """What was kept of an endpoint."""
    return [stored.result for stored in read_all_kept(folder) if stored.endpoint_id == endpoint_id]


def read_all_kept(folder: Path) -> list[StoredCalibration]:
    """What was kept of all endpoints; files that cannot be read are passed over."""
    found: list[StoredCalibration] = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(path.read_bytes(), type=StoredCalibration))
    return found
