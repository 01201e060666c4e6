"""The folder of built environments: who builds one, who uses one, which are finished, and what is cleaned away.

Used by `environment`. One folder per key, which is the virtual environment itself: scripts in it hold its path, so it
is built where it stays, and counts as finished only when its marker is there, which is written last. Beside it lies
`<key>.lock`: its builder holds it alone, its users share it, and both let go by dying.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steelyard.settings import Settings

MARKER_FILE = "steelyard.json"
KEPT_ENVIRONMENTS = 10
UNUSED_LIMIT_S = 30 * 24 * 3600.0
_KEY = re.compile(r"[0-9a-f]{24}")


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished environment is, for the next user and for people who look."""

    key: str
    python: str  # "3.11"
    requirements: list[str]
    build_s: float
    fingerprint: str  # of the packages that are in it


class Hold:
    """A lock on one environment, until `release` or the end of this process (and of children that inherited it)."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Safe to call twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Store:
    """Methods raise OSError. Nothing here waits: a lock that another holds is None."""

    folder: Path

    def place(self, key: str) -> Path:
        return self.folder / key

    def share(self, key: str) -> Hold | None:
        return self._lock(key, fcntl.LOCK_SH)

    def own(self, key: str) -> Hold | None:
        return self._lock(key, fcntl.LOCK_EX)

    def finished(self, key: str) -> Marker | None:
        """None when it was never finished, or lost its interpreter. Meaningful under a lock only."""
        place = self.place(key)
        try:
            marker = msgspec.json.decode((place / MARKER_FILE).read_bytes(), type=Marker)
        except (OSError, msgspec.MsgspecError):
            return None
        return marker if (place / "bin" / "python").exists() else None

    def finish(self, marker: Marker) -> None:
        """The last act of a build."""
        place = self.place(marker.key)
        unfinished = place / f"{MARKER_FILE}.new"
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(marker)))
        unfinished.rename(place / MARKER_FILE)

    def clear(self, key: str) -> None:
        """Removes the folder, its marker first, so that what is left half removed never counts as finished."""
        with suppress(FileNotFoundError):
            (self.place(key) / MARKER_FILE).unlink()
        with suppress(FileNotFoundError):
            shutil.rmtree(self.place(key))

    def touch(self, key: str, now_s: float | None = None) -> None:
        """It was in use just now (or at `now_s`, seconds since the epoch)."""
        with suppress(FileNotFoundError):
            os.utime(self.place(key) / MARKER_FILE, None if now_s is None else (now_s, now_s))

    def last_used_s(self, key: str) -> float:
        return (self.place(key) / MARKER_FILE).stat().st_mtime

    def forget(self, key: str) -> None:
        """Removes the lock's file too; its owner calls this last, and whoever waited for it opens a new one."""
        with suppress(FileNotFoundError):
            self._lock_file(key).unlink()

    def known(self) -> list[str]:
        """Of folders and of locks without one; whatever else lies there is not ours."""
        names = {item.name.removesuffix(".lock") for item in self.folder.glob("*")}
        return sorted(name for name in names if _KEY.fullmatch(name))

    def _lock_file(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _lock(self, key: str, mode: int) -> Hold | None:
        path = self._lock_file(key)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            hold = Hold(descriptor)
            try:
                fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return hold
            except BlockingIOError:
                hold.release()
                return None
            except FileNotFoundError:
                pass  # it was removed between our opening and our locking it, as was the one of another inode
            except BaseException:
                hold.release()
                raise
            hold.release()


def collect_garbage(settings: Settings, now_s: float) -> tuple[str, ...]:
    """Removes what nobody uses: half-built environments, those unused for 30 days, and the least recently used beyond
    ten. Those in use count among the ten and stay. Returns a line for each one removed. Raises OSError.

    `now_s`: seconds since the epoch.
    """
    store = Store(settings.environments_dir)
    used: list[tuple[float, str]] = []
    removed: list[str] = []
    for key in store.known():
        hold = store.own(key)
        if hold is None:  # in use or being built, now
            store.touch(key, now_s)
            used.append((now_s, key))
            continue
        try:
            if store.finished(key) is not None:
                used.append((store.last_used_s(key), key))
                continue
            if store.place(key).exists():
                removed.append(f"removed the environment {key}: it was never finished")
            store.clear(key)
            store.forget(key)
        finally:
            hold.release()
    for place, (last_used_s, key) in enumerate(sorted(used, reverse=True)):
        unused_s = now_s - last_used_s
        if unused_s > UNUSED_LIMIT_S:
            removed += _remove(store, key, f"unused for {unused_s / 86400:.0f} days")
        elif place >= KEPT_ENVIRONMENTS:
            removed += _remove(store, key, f"{KEPT_ENVIRONMENTS} others were used since")
    return tuple(removed)


def _remove(store: Store, key: str, why: str) -> list[str]:
    hold = store.own(key)
    if hold is None:
        return []
    try:
        store.clear(key)
        store.forget(key)
    finally:
        hold.release()
    return [f"removed the environment {key}: {why}"]
