"""The Python environment that a model runs in: the platform's own where it satisfies the model's requirements, else one
built for them by uv, shared by every model that wants the same.

Called by the replica, in a thread, before the model's worker is started; it blocks for as long as a build takes. It
neither imports the model nor judges it.
"""

from __future__ import annotations

import errno
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.errors import ModelLoadError
from steelyard.packages import uv, uv_reasons
from steelyard.packages.environment_store import Hold, Marker, Store, collect_garbage
from steelyard.packages.inspect import Package
from steelyard.packages.interpreters import interpreter
from steelyard.packages.requirements import Requirements, needed
from steelyard.packages.satisfied import fingerprint, fingerprint_here, satisfied_here
from steelyard.settings import Settings

__all__ = ["Environment", "Requirements", "collect_garbage", "ensure", "needed", "provide", "satisfied_here"]

BUILD_LIMIT_S = 20 * 60.0
BUILD_LOG_FILE = "build.log"
_POLL_S = 0.1
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a model runs. Keep it for as long as something runs in it: it is not cleaned away before `release`."""

    python: Path
    key: str  # "platform", or the name of its folder
    reused: bool  # nothing was built
    reason: str  # one clause for the log and the user
    fingerprint: str  # of the packages that are in it
    hold: Hold | None = None

    def release(self) -> None:
        """Safe to call twice, and needless in a process that ends."""
        if self.hold is not None:
            self.hold.release()


def ensure(package: Package, settings: Settings, say: Say) -> Environment:
    """The environment for a model, built if it must be; `say` takes a line of progress, and every line that uv writes.

    Raises ModelLoadError: a requirement that is refused or cannot be met, no uv, no network, a full disk, 20 minutes.
    """
    return provide(needed(package), settings, say)


def provide(wanted: Requirements, settings: Settings, say: Say) -> Environment:
    """The same for requirements that are known already."""
    store = Store(settings.environments_dir)
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        python, minor = interpreter(wanted.python, store.folder, say)
        wanted = replace(wanted, python=minor)
        difference = satisfied_here(wanted)
        if difference is None:
            reason = "the platform's own environment satisfies the model's requirements"
            return Environment(Path(sys.executable), "platform", True, reason, fingerprint_here())
        say(f"the model needs an environment of its own: {difference}")
        return _Provision(settings, wanted, python, minor, say).run(difference)
    except OSError as error:
        raise _disk_error(store.folder, error) from error


class _Provision:
    """One try to get hold of one environment: use it, wait for another's build, or build it."""

    def __init__(self, settings: Settings, wanted: Requirements, python: Path, minor: str, say: Say) -> None:
        self._settings = settings
        self._store = Store(settings.environments_dir)
        self._wanted = wanted
        self._python = python
        self._minor = minor
        self._say = say
        self._key = wanted.key(minor, _platform())
        self._place = self._store.place(self._key)

    def run(self, difference: str) -> Environment:
        built = False
        told = False
        deadline_s = time.monotonic() + 2 * BUILD_LIMIT_S
        while time.monotonic() < deadline_s:
            hold = self._store.share(self._key)
            marker = self._store.finished(self._key) if hold is not None else None
            if hold is not None and marker is not None:
                return self._environment(hold, marker, built, difference)
            if hold is not None:
                hold.release()
                built = self._build_if_nobody_does()
            elif not told:
                self._say(f"environment {self._key}: another process is building it; waiting")
                told = True
            if not built:
                time.sleep(_POLL_S)
        raise ModelLoadError("Another process has been building this model's environment for too long; see its log.")

    def _environment(self, hold: Hold, marker: Marker, built: bool, difference: str) -> Environment:
        self._store.touch(self._key)
        how = f"built in {marker.build_s:.0f} s" if built else "built before and used again"
        self._say(f"environment {self._key}: {how}")
        reason = f"{difference}; its own environment was {how}"
        return Environment(self._place / "bin" / "python", self._key, not built, reason, marker.fingerprint, hold)

    def _build_if_nobody_does(self) -> bool:
        hold = self._store.own(self._key)
        if hold is None:
            return False
        try:
            if self._store.finished(self._key) is not None:
                return False
            self._build(hold)
        except BaseException:
            self._store.clear(self._key)
            raise
        finally:
            hold.release()
        with suppress(OSError):  # what cannot be cleaned away now is no fault of this model
            for line in collect_garbage(self._settings, time.time()):
                self._say(line)
        return True

    def _build(self, hold: Hold) -> None:
        started_s = time.monotonic()
        self._store.clear(self._key)
        self._say(f"environment {self._key}: building it for Python {self._minor}: {', '.join(self._wanted.names())}")
        made = self._uv(["venv", "--no-project", "--python", self._python, self._place], hold, started_s, self._say)
        if not made.ok:
            raise _failure(made, self._store.folder)
        installed = self._install(hold, started_s)
        (self._place / BUILD_LOG_FILE).write_text("\n".join([*made.lines, *installed.lines]) + "\n")
        self._store.finish(
            Marker(
                key=self._key,
                python=self._minor,
                requirements=list(self._wanted.lines),
                build_s=round(time.monotonic() - started_s, 1),
                fingerprint=fingerprint(self._place.glob("lib/python*/site-packages")),
            )
        )

    def _install(self, hold: Hold, started_s: float) -> uv.Outcome:
        command: list[str | Path] = ["pip", "install", "--python", self._place / "bin" / "python"]
        command += self._wanted.options
        for option, lines in (("--requirement", self._wanted.for_uv()), ("--constraint", self._wanted.constraints)):
            if lines:
                file = self._place / f"{option.strip('-')}s.txt"
                file.write_text("\n".join(lines) + "\n")
                command += [option, file]
        # What uv's cache holds needs no network, and what failed there says nothing yet.
        installed = self._uv([*command, "--offline"], hold, started_s, lambda line: None)
        if installed.ok:
            self._say("uv's cache holds everything; the network was not used")
            for line in installed.lines:
                self._say(line)
            return installed
        self._say("uv's cache does not hold everything; asking the package index")
        installed = self._uv(command, hold, started_s, self._say)
        if not installed.ok:
            raise _failure(installed, self._store.folder)
        return installed

    def _uv(self, arguments: Sequence[str | Path], hold: Hold, started_s: float, say: Say) -> uv.Outcome:
        """uv inherits the lock: should we die, nobody builds in the same folder before it has ended too."""
        limit_s = max(1.0, BUILD_LIMIT_S - (time.monotonic() - started_s))
        return uv.run(arguments, folder=self._store.folder, say=say, limit_s=limit_s, keep_open=(hold.descriptor,))


def _failure(outcome: uv.Outcome, folder: Path) -> ModelLoadError:
    if outcome.timed_out:
        return ModelLoadError(
            f"The model's requirements could not be installed within {BUILD_LIMIT_S / 60:.0f} minutes; see the log."
        )
    if uv_reasons.disk_is_full(outcome.lines):
        return _disk_is_full(folder)
    return ModelLoadError(f"The model's requirements cannot be installed: {uv_reasons.reason(outcome.lines)}.")


def _disk_error(folder: Path, error: OSError) -> ModelLoadError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _disk_is_full(folder)
    return ModelLoadError(
        f"The model's environment cannot be made in '{folder}': {error.strerror or type(error).__name__}."
    )


def _disk_is_full(folder: Path) -> ModelLoadError:
    return ModelLoadError(f"The disk that holds '{folder}' or uv's cache is full; free some space and deploy again.")


def _platform() -> str:
    """What compiled packages depend on beside the Python version."""
    return "-".join([sys.implementation.name, sysconfig.get_platform(), *platform.libc_ver()])
