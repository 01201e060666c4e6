"""Artifacts that a disk or a process damaged: a load error, after which the proof is made anew."""

import io

import msgspec
import numpy as np
import pytest

from steelyard.contracts.artifacts import ARTIFACT_FILE, Artifact
from steelyard.errors import ModelLoadError
from steelyard.runtimes.native import open_native


def _archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, coefficients=np.ones((1, 2)), intercepts=np.zeros(1))
    return file.getvalue()


WHOLE = _archive()


@pytest.mark.parametrize(
    "archive", [b"", b"PK", WHOLE[: len(WHOLE) // 2], WHOLE[:-1], WHOLE[:60] + b"?" * 60 + WHOLE[120:]], ids=len
)
def test_damaged_arrays_are_a_load_error(tmp_path, archive):
    artifact = Artifact(runtime="linear", features=["a", "b"], files={"arrays": "arrays.npz"})
    (tmp_path / ARTIFACT_FILE).write_bytes(msgspec.json.encode(artifact))
    (tmp_path / "arrays.npz").write_bytes(archive)
    with pytest.raises(ModelLoadError):
        open_native(tmp_path)
