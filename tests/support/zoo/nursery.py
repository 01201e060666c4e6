"""Builds the zoo's families in processes of their own, two at a time, while tests already use what is ready."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Self

from support.zoo.case import Case, read_case
from support.zoo.catalog import FAMILY_OF

TESTS = Path(__file__).parents[2]


class Nursery:
    """`of(name)` waits for a model; what lies in the folder already is not built again."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(2)
        missing = [name for name in names if not (root / name / "case.json").exists()]
        self._builds: dict[str, Future[None]] = {
            family: self._pool.submit(self._build, family, list(members))
            for family, members in groupby(missing, FAMILY_OF.__getitem__)
        }

    def ready(self, name: str) -> bool:
        build = self._builds.get(FAMILY_OF[name])
        return build is None or build.done()

    def of(self, name: str) -> Case:
        """The built case. Raises AssertionError with the builder's output when it failed."""
        if build := self._builds.get(FAMILY_OF[name]):
            build.result()
        return read_case(self._root / name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _build(self, family: str, names: list[str]) -> None:
        quiet = {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "support.zoo.build", family, str(self._root), *names],
            env={**os.environ, **quiet, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            cwd=self._root,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"the family {family} cannot be built:\n{done.stderr[-3000:]}"
