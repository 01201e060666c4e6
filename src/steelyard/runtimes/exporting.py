"""The replica's end of an export that runs beside a worker: the order for it, the wait for its end, its results.

Made by `worker_pool.py` for the first worker of a model whose runtimes are to be proven; closed by the process that
never got ready, else by the pool. What it copies was written by the model's own process, so it takes no links.
"""

from __future__ import annotations

import os
import select
import shutil
import sysconfig
from pathlib import Path

from steelyard.contracts.worker import EXPORTED, ExportBeside

_FOLDER = "exported"
_LIMIT_S = 100.0  # a little more than it takes itself


class Exporting:
    """One export. `write_end` goes to the worker, which is told of it by `order`."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self._home = Path()

    def order(self, home: Path) -> ExportBeside:
        """To write into a folder in the worker's `home`."""
        self._home = home
        return ExportBeside(str(home / _FOLDER), self.write_end, sysconfig.get_paths()["purelib"])

    def begun(self) -> None:
        """The worker has its end of the pipe."""
        os.close(self.write_end)
        self.write_end = -1

    def copy_to(self, out: Path) -> bool:
        """Wait for its end and copy what it left. False when it did not come to its end, or left what nobody can copy;
        there is no `out` then. Once."""
        waiting = select.poll()
        waiting.register(self._read_end, select.POLLIN)
        try:
            if not waiting.poll(_LIMIT_S * 1e3) or os.read(self._read_end, 1) != EXPORTED:
                return False
        finally:
            self.close()
        left = self._home / _FOLDER
        try:
            if left.is_symlink():
                return False
            shutil.copytree(left, out, ignore=_not_plain, copy_function=shutil.copyfile)
        except OSError:
            shutil.rmtree(out, ignore_errors=True)
            return False
        return True

    def close(self) -> None:
        """Safe to call twice."""
        for descriptor in (self._read_end, self.write_end):
            if descriptor >= 0:
                os.close(descriptor)
        self._read_end = self.write_end = -1


def _not_plain(folder: str, names: list[str]) -> list[str]:
    places = {name: Path(folder, name) for name in names}
    return [name for name, place in places.items() if place.is_symlink() or not (place.is_file() or place.is_dir())]
