"""Runs uv, which makes virtual environments and installs packages, and says in a few words why it failed.

Called by `environment` only. uv runs in our process group, so that it ends with the replica, behind everyone else's
work on the machine (`nice`), and with none of the platform's settings in its environment. It never fetches a Python.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import ModelLoadError

_LINE_CHARACTERS = 2000
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
# Two cores serve requests meanwhile, and a build of ours is never urgent.
_POLITE = {"UV_CONCURRENT_DOWNLOADS": "4", "UV_CONCURRENT_BUILDS": "1", "UV_CONCURRENT_INSTALLS": "1"}
_QUIET = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "GIT_TERMINAL_PROMPT": "0"}
_DROPPED = {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT"}
_FROM_PIP = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_EXTRA_INDEX_URL", "UV_INDEX"),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_CERT": ("SSL_CERT_FILE",),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What uv said, and whether it succeeded. `timed_out`: it was ended by us."""

    ok: bool
    lines: tuple[str, ...]
    timed_out: bool = False


def find_uv() -> Path:
    """Beside the platform's interpreter, else on the PATH. Raises ModelLoadError."""
    beside = Path(sys.executable).parent / "uv"
    if beside.is_file():
        return beside
    found = shutil.which("uv")
    if found is None:
        raise ModelLoadError(
            "The model needs an environment of its own, and uv, which builds it, is missing; install uv with pip."
        )
    return Path(found)


def run(
    arguments: Sequence[str | Path],
    *,
    folder: Path,
    say: Callable[[str], None],
    limit_s: float,
    keep_open: Sequence[int] = (),
) -> Outcome:
    """uv with these arguments in `folder`; each of its lines goes to `say` as it comes.

    Descriptors in `keep_open` stay open until uv and everything that it started have ended.
    """
    command = [*_nice(), str(find_uv()), *map(str, arguments)]
    lines: list[str] = []
    expired = threading.Event()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=_surroundings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=keep_open,
    ) as process:
        assert process.stdout is not None

        def expire() -> None:
            expired.set()
            _kill_tree(process.pid)

        watch = threading.Timer(limit_s, expire)
        watch.daemon = True
        watch.start()
        try:
            for line in process.stdout:
                text = _CREDENTIALS.sub("***@", line.rstrip())[:_LINE_CHARACTERS]
                lines.append(text)
                say(text)
        except BaseException:
            _kill_tree(process.pid)
            raise
        finally:
            watch.cancel()
    return Outcome(process.returncode == 0, tuple(lines), expired.is_set())


def _nice() -> list[str]:
    return ["nice", "-n", "10"] if shutil.which("nice") else []


def _surroundings() -> dict[str, str]:
    """Ours without secrets, uv's own variables kept; where only pip was told of an index, uv hears of it too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEELYARD_")}
    for name in _DROPPED:
        kept.pop(name, None)
    for name, targets in _FROM_PIP.items():
        if kept.get(name) and not any(target in kept for target in targets):
            kept[targets[0]] = kept[name].replace(" ", ",") if name == "PIP_FIND_LINKS" else kept[name]
    return {**_POLITE, **kept, **_QUIET}


def _kill_tree(pid: int) -> None:
    """uv and the builds that it started; they are in our own process group, which must live."""
    for victim in [pid, *_descendants(pid)]:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _descendants(child)
