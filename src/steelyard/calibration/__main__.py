"""`python -m steelyard.calibration <CalibrationSpec as JSON>`: progress and the result as lines of JSON.

Ends when its standard input ends: whoever started it is gone, or wants no more of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec
import uvloop

from steelyard.calibration.runner import calibrate
from steelyard.contracts.cost import CalibrationEnd, CalibrationLine, CalibrationProgress, CalibrationSpec
from steelyard.errors import SteelyardError

_USAGE_STATUS = 2


async def run(spec: CalibrationSpec) -> CalibrationEnd:
    """Whatever happens, what to say last."""
    task = asyncio.ensure_future(calibrate(spec, _say))
    _watch_input(task)
    try:
        return CalibrationEnd(result=await task)
    except SteelyardError as error:
        return CalibrationEnd(failure=error.message)
    except asyncio.CancelledError:
        return CalibrationEnd(failure="The calibration was stopped.")


def _say(done: int, left: int, detail: str) -> None:
    _write(CalibrationProgress(done=done, left=left, detail=detail))


def _write(line: CalibrationLine) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _watch_input(task: asyncio.Future[Any]) -> None:
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()

    def readable() -> None:
        if os.read(descriptor, 4096) == b"":
            loop.remove_reader(descriptor)
            task.cancel()

    loop.add_reader(descriptor, readable)


def main() -> int:
    try:
        spec = msgspec.json.decode(sys.argv[1], type=CalibrationSpec)
    except (IndexError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"usage: python -m steelyard.calibration SPEC ({error})\n")
        return _USAGE_STATUS
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        end = runner.run(run(spec))
    _write(end)
    return 0 if end.result is not None else 1


if __name__ == "__main__":
    sys.exit(main())
