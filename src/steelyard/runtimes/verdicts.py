"""What earlier selections found, kept on disk: a model that was proven once starts at once the next time.

One folder per model and platform under `settings.runtimes_dir`: the record and the artifacts of the chosen runtime. A
folder appears whole or not at all, one process at a time makes it, and the oldest unused ones are pushed out. Called
by `select.py` in the replica's loading thread; it decides nothing about runtimes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEPT = 100
_READ_WHOLE_BYTES = 512 * 1024 * 1024  # larger models are known by their files' sizes and times
_CHUNK_BYTES = 1024 * 1024


def fingerprint(model: Path, marks: Sequence[str]) -> str:
    """Of all files of the model and of `marks`: what else the verdict rests on (versions, environment, machine)."""
    files = [model] if model.is_file() else sorted(path for path in model.rglob("*") if path.is_file())
    whole = sum(path.stat().st_size for path in files) <= _READ_WHOLE_BYTES
    digest = hashlib.blake2b(digest_size=16)
    for mark in marks:
        digest.update(mark.encode() + b"\0")
    for path in files:
        digest.update(str(path.relative_to(model)).encode() + b"\0")
        status = path.stat()
        digest.update(b"%d\0" % status.st_size)
        if whole:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        else:
            digest.update(b"%d\0" % status.st_mtime_ns)
    return digest.hexdigest()


class Verdicts:
    """The folders under `home`, by fingerprint."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def find(self, key: str) -> Path | None:
        """The folder of an earlier selection, which is marked as used; None when there is none."""
        folder = self._home / key
        try:
            os.utime(folder)
        except FileNotFoundError:
            return None
        return folder

    def discard(self, key: str) -> None:
        """It did not hold."""
        shutil.rmtree(self._home / key, ignore_errors=True)

    @contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """One process at a time per model: whoever waited looks again before it starts a selection of its own."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._home / f".{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder to prepare in, beside the finished ones; removed at the end unless it was kept."""
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=self._home, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def keep(self, draft: Path, key: str) -> Path:
        """The draft becomes the folder of `key`; the oldest unused ones go."""
        folder = self._home / key
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
        folders = [path for path in self._home.iterdir() if path.is_dir() and not path.name.startswith(".")]
        folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in folders[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
            (self._home / f".{old.name}.lock").unlink(missing_ok=True)
        return folder
