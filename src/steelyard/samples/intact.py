"""Tells whether a trained sample on disk is whole and current, and puts a new one there in one step.

Used by `prepare`. A sample is current when its manifest names the same recipe (library versions) and every file has
the size and SHA-256 that it had when it was saved. Never trains anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

MANIFEST = "steelyard-sample.json"


def is_intact(folder: Path, recipe: str) -> bool:
    """True when `folder` holds what `install` put there under the same `recipe`."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return bool(manifest["recipe"] == recipe and manifest["files"] == _fingerprints(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def install(folder: Path, recipe: str, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder and move it to `folder` whole; what was there before is removed.

    Raises whatever `write` raises; nothing is left behind then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        write(new)
        (new / MANIFEST).write_text(json.dumps({"recipe": recipe, "files": _fingerprints(new)}, indent=1))
        if folder.is_dir() and not folder.is_symlink():
            os.rename(folder, old)
        elif folder.exists():
            folder.unlink()
        try:
            os.rename(new, folder)
        except OSError:  # another process was faster and put the same sample there
            if not is_intact(folder, recipe):
                raise
        shutil.rmtree(old, ignore_errors=True)


def _fingerprints(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
