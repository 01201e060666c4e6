"""Writes what a converter made: an artifact folder, or the sentence that says why there is none.

Used by `__main__.py` and the converters. A folder has `artifact.json` only when all its other files are complete.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from steelyard.contracts.artifacts import ARTIFACT_FILE, REFUSED_FILE, Artifact, NativeRuntime
from steelyard.worker.export.source import Refused

_ARRAYS = "arrays.npz"


def attempt(out: Path, name: NativeRuntime, convert: Callable[[Path], Artifact]) -> bool:
    """Whether there is an artifact now. `convert` writes into the folder that it is given."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        artifact = convert(folder)
        (folder / ARTIFACT_FILE).write_bytes(msgspec.json.encode(artifact))
    except Refused as error:
        refuse(out, name, str(error))
        return False
    except Exception as error:  # the model's library may raise anything
        traceback.print_exc(file=sys.stderr)
        refuse(out, name, f"Its conversion failed with {type(error).__name__}.")
        return False
    return True


def refuse(out: Path, name: str, sentence: str) -> None:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REFUSED_FILE).write_text(sentence + "\n")


def save_arrays(folder: Path, arrays: dict[str, Any]) -> dict[str, str]:
    """The entry of an artifact's `files` for them; empty when there are none."""
    if not arrays:
        return {}
    if any(array.dtype == object for array in arrays.values()):
        raise Refused("It holds arrays of objects.")
    np.savez(str(folder / _ARRAYS), **arrays)
    return {"arrays": _ARRAYS}


def plain_classes(classes: Any) -> tuple[list[Any], str]:
    """A classifier's labels as JSON values, and their dtype's name. Raises Refused for labels that JSON cannot hold."""
    labels = np.asarray(classes)
    if labels.dtype.kind not in "biufUO":
        raise Refused("Its labels are neither numbers, booleans nor text.")
    values = labels.tolist()
    if any(not isinstance(value, (bool, int, float, str)) for value in values):
        raise Refused("Its labels are neither numbers, booleans nor text.")
    return values, "object" if labels.dtype == object else labels.dtype.str
