"""`python -m steelyard.samples FOLDER [NAME…]`: prepares samples and prints one JSON line for each as it is ready.

Started by `steelyard up --samples`, so that training's imports never weigh on the command line. Exit status 1 and one
line on stderr when a sample could not be trained.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import sys
import warnings
from pathlib import Path

from steelyard.samples.catalog import SAMPLES
from steelyard.samples.prepare import Prepared, ensure


def main(arguments: list[str]) -> int:
    """Prepare the named samples (all by default) under the folder in `arguments[0]`."""
    if not arguments:
        print("usage: python -m steelyard.samples FOLDER [NAME…]", file=sys.stderr)  # noqa: T201
        return 2
    folder, names = Path(arguments[0]).expanduser().resolve(), set(arguments[1:])
    _silence_libraries()
    failed = False
    for sample in SAMPLES:
        if names and sample.name not in names:
            continue
        try:
            with contextlib.redirect_stdout(sys.stderr):
                outcome = ensure(sample, folder)
            line = {"ready": isinstance(outcome, Prepared), **dataclasses.asdict(outcome)}
        except Exception as error:
            failed = True
            line = {"ready": False, "name": sample.name, "reason": f"{type(error).__name__}: {error}", "failed": True}
        print(json.dumps(line), flush=True)  # noqa: T201
    return int(failed)


def _silence_libraries() -> None:
    """Training must not fetch, report or decorate anything: its only output is one line per sample."""
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", TQDM_DISABLE="1", DO_NOT_TRACK="true")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
