"""What a worker gives up before a model's code runs in it: its privileges, its outliving the replica, its memory rank.

Called once, at the start of the process. Nothing here ever fails a worker: what the system does not allow is left.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_OOM_SCORE_STEP = 300  # the kernel, out of memory, takes a worker rather than its replica
_NOBODY = 65534
_MAX_FILES = 20_000  # of a model that are tried one by one


def give_up_privileges(model: Path, home: Path) -> bool:
    """Become nobody, for good, if this is root and nobody can read what the model needs. Says whether it did."""
    if os.geteuid() != 0:
        return False
    user, group = _nobody()
    try:
        os.setgroups([])
        os.setresgid(group, group, 0)
        os.setresuid(user, user, 0)  # root may still come back
    except OSError:
        return False
    able = _can_read(model) and _can_import()
    with suppress(OSError):
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
    if not able:
        return False
    with suppress(OSError):
        os.chown(home, user, group)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    os.environ["HOME"] = str(home)
    return True


def confine(parent_pid: int) -> None:
    """Gain no privileges by any program; die with the replica. After `give_up_privileges`, which undoes the latter."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before this was set
        os._exit(0)


def be_first_to_go() -> None:
    """When memory runs out. Before `give_up_privileges`."""
    with suppress(OSError, ValueError):
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(min(1000, int(score.read_text()) + _OOM_SCORE_STEP)))


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _NOBODY, _NOBODY
    return entry.pw_uid, entry.pw_gid


def _can_read(folder: Path) -> bool:
    """Every file of the model, tried with the present user."""
    count = 0
    if not os.access(folder, os.R_OK | os.X_OK):
        return False
    for place, folders, files in os.walk(folder):
        count += len(files)
        if count > _MAX_FILES or not all(os.access(Path(place, name), os.R_OK | os.X_OK) for name in folders):
            return False
        if not all(os.access(Path(place, name), os.R_OK) for name in files):
            return False
    return True


def _can_import() -> bool:
    """The interpreter, and a package from each place that packages are found in."""
    if not os.access(sys.executable, os.R_OK | os.X_OK):
        return False
    if not all(os.access(place, os.R_OK | os.X_OK) for place in sys.path if place and os.path.isdir(place)):
        return False
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    for name in ("mlflow", "numpy", "yaml"):
        with suppress(ImportError, ValueError):
            found = importlib.util.find_spec(name)
            if found is not None and found.origin and not os.access(found.origin, os.R_OK):
                return False
    return _present(("msgspec", "json"))


def _present(names: tuple[str, ...]) -> bool:
    return all(os.access(str(sys.modules[name].__file__), os.R_OK) for name in names if name in sys.modules)
