"""Which Python interpreter a model's environment is made from: of the model's own minor version, if there is one here.

Called by `environment`. It looks where uv looks and where pyenv keeps its versions; it never downloads one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from steelyard.packages import uv
from steelyard.packages.satisfied import PYTHON_HERE

OLDEST = (3, 10)  # what the worker's own code runs on
_FIND_LIMIT_S = 60.0


def interpreter(minor: str | None, folder: Path, say: Callable[[str], None]) -> tuple[Path, str]:
    """An interpreter and its minor version, the platform's own where the model's is not to be had (which is said)."""
    if minor is None or minor == PYTHON_HERE:
        return Path(sys.executable), PYTHON_HERE
    if tuple(map(int, minor.split("."))) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        say(f"warning: the model was saved with Python {minor}, older than {oldest}; {PYTHON_HERE} runs it")
        return Path(sys.executable), PYTHON_HERE
    found = _by_pyenv(minor) or _by_uv(minor, folder)
    if found is None:
        say(f"warning: the model was saved with Python {minor}, which is not on this machine; {PYTHON_HERE} runs it")
        return Path(sys.executable), PYTHON_HERE
    return found, minor


def _by_uv(minor: str, folder: Path) -> Path | None:
    arguments = ["python", "find", "--no-project", "--system", minor]
    outcome = uv.run(arguments, folder=folder, say=lambda line: None, limit_s=_FIND_LIMIT_S)
    path = Path(outcome.lines[-1]) if outcome.ok and outcome.lines else None
    return path if path is not None and path.is_file() else None


def _by_pyenv(minor: str) -> Path | None:
    """The newest patch release; pyenv's shims, which uv finds, work only for the versions that are switched on."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = []
    for path in root.glob(f"versions/{minor}.*/bin/python{minor}"):
        patch = re.fullmatch(r"\d+\.\d+\.(\d+)", path.parent.parent.name)
        if patch is not None and path.is_file():
            found.append((int(patch[1]), path))
    return max(found)[1] if found else None
