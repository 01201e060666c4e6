"""What kind of model a single file is, told by its first bytes and not by its name alone.

Called by `resolve`. Formats that run code when they are opened (pickles and what is built on them) are refused here,
so that nobody further on can open one by mistake. Nothing of a file is executed or unpacked.
"""

from __future__ import annotations

import enum
import zipfile
from pathlib import Path

from steelyard.errors import ModelLoadError

_HEAD_BYTES = 4096
_PICKLE_SUFFIXES = {".pkl", ".pickle", ".joblib", ".sav", ".dill", ".cloudpickle"}
_PICKLE_MAGICS = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_TORCH_SUFFIXES = {".pt", ".pth", ".ts", ".torchscript"}
_ONNX_FIRST_FIELD = b"\x08"  # the IR version: a varint, the first field of every ONNX model


class Kind(enum.Enum):
    MLFLOW = "mlflow"
    HUGGING_FACE = "hugging_face"
    SENTENCE_TRANSFORMERS = "sentence_transformers"
    GGUF = "gguf"
    ONNX = "onnx"
    LIGHTGBM = "lightgbm"
    XGBOOST = "xgboost"
    CATBOOST = "catboost"
    TORCHSCRIPT = "torchscript"


_BY_SUFFIX = {
    ".gguf": Kind.GGUF,
    ".onnx": Kind.ONNX,
    ".cbm": Kind.CATBOOST,
    ".ubj": Kind.XGBOOST,
}
_NAMES = {Kind.GGUF: "a GGUF file", Kind.ONNX: "an ONNX model", Kind.CATBOOST: "a CatBoost model"}
_NAMES[Kind.XGBOOST] = "an XGBoost model"
MODEL_SUFFIXES = tuple(_BY_SUFFIX)
"""Of files that are a model by their name, so that a folder with one of them is that model."""


def kind_of_file(path: Path, uri: str) -> Kind:
    """Reads the first 4 KiB (of a zip archive: its table). Raises ModelLoadError, OSError."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    suffix = path.suffix.lower()
    found = _by_content(head, suffix)
    if found is not None:
        return found
    if suffix in _TORCH_SUFFIXES or head.startswith(b"PK\x03\x04"):
        return _torchscript(path, uri)
    if suffix in _PICKLE_SUFFIXES or head.startswith(_PICKLE_MAGICS):
        raise ModelLoadError(
            f"'{uri}' is a pickle, which runs code when it is opened; log the model with MLflow and give that."
        )
    if suffix in _BY_SUFFIX:
        raise ModelLoadError(f"'{uri}' is not {_NAMES[_BY_SUFFIX[suffix]]} though its name says so.")
    if head.startswith(b"binf"):
        raise ModelLoadError(f"'{uri}' is in XGBoost's old binary format; save the model as .json or .ubj.")
    if suffix == ".safetensors":
        raise ModelLoadError(f"'{uri}' holds weights alone; give the folder with its config.json.")
    raise ModelLoadError(
        f"'{uri}' is a file of an unknown kind; give an MLflow or Hugging Face folder or a .gguf file, or one "
        "that ONNX, LightGBM (text), XGBoost (.json, .ubj), CatBoost (.cbm) or TorchScript (.pt) wrote."
    )


def _by_content(head: bytes, suffix: str) -> Kind | None:
    if head.startswith(b"GGUF"):
        return Kind.GGUF
    if head.startswith(b"CBM1"):
        return Kind.CATBOOST
    if head.startswith((b"tree\nversion=", b"tree\r\nversion=")):
        return Kind.LIGHTGBM
    text = head.lstrip()
    if text.startswith(b"{") and b"learner" in text[:64]:  # JSON text or UBJSON: the same object
        return Kind.XGBOOST
    if suffix == ".onnx" and head.startswith(_ONNX_FIRST_FIELD):
        return Kind.ONNX
    return None


def _torchscript(path: Path, uri: str) -> Kind:
    """A TorchScript archive brings its code along; one written by `torch.save` is a pickle in a zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError):
        names = []
    if any(name.endswith("/constants.pkl") for name in names) and any("/code/" in name for name in names):
        return Kind.TORCHSCRIPT
    raise ModelLoadError(
        f"'{uri}' is no TorchScript file; save the model with torch.jit.save, or log it with MLflow and give that."
    )
