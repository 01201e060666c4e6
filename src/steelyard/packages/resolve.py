"""From a model's URI to files on this machine, and what kind of package they are.

Called by the replica at its start. A URI may be a path, `file://…`, a registry or run URI that mlflow resolves
(`models:/name/3`, `models:/name@alias`, `runs:/…`), or a registered name with its version given apart. Reads only
directory listings, a sentence-transformers list of modules and the first bytes of a single file.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from steelyard.errors import ModelLoadError
from steelyard.packages.model_files import MODEL_SUFFIXES, Kind, kind_of_file

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_MLFLOW_SCHEMES = {"models", "runs", "mlflow-artifacts", "s3", "gs", "abfss", "wasbs", "dbfs"}


@dataclass(frozen=True, slots=True)
class Location:
    """`path` is a folder for MLflow, Hugging Face and sentence-transformers models, else the file itself."""

    path: Path
    kind: Kind


def resolve(uri: str, version: str | None = None) -> Location:
    """Where the model's files are; downloads them if mlflow must. Raises ModelLoadError."""
    scheme = _SCHEME.match(uri)
    name = scheme[1].lower() if scheme else None
    if name == "file":
        return _local(_file_path(uri), uri)
    if name in _MLFLOW_SCHEMES:
        return _local(_download(_with_version(uri, version)), uri)
    if name is not None and not Path(uri).exists():
        raise ModelLoadError(f"The scheme of '{uri}' is not known; use a path, models:/… or runs:/….")
    path = Path(uri).expanduser()
    if not path.exists() and version and "/" not in uri:
        return _local(_download(f"models:/{uri}/{version}"), uri)
    return _local(path, uri)


def _with_version(uri: str, version: str | None) -> str:
    """`models:/name` with a version given apart becomes `models:/name/version`."""
    rest = uri.partition(":")[2].strip("/")
    if version and uri.lower().startswith("models:") and "/" not in rest and "@" not in rest:
        return f"models:/{rest}/{version}"
    return uri


def _file_path(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise ModelLoadError(f"'{uri}' names another machine; a file:// URI must be local.")
    return Path(unquote(parts.path))


def _download(uri: str) -> Path:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mlflow.artifacts import download_artifacts  # noqa: PLC0415  (seconds to import)
    except ImportError:
        raise ModelLoadError(f"'{uri}' needs mlflow; install steelyard[mlflow].") from None
    try:
        return Path(download_artifacts(artifact_uri=uri))
    except Exception as error:  # mlflow lets the errors of a dozen storage clients through
        raise ModelLoadError(f"'{uri}' cannot be fetched: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0][:300].rstrip(".") + "."


def _local(path: Path, uri: str) -> Location:
    try:
        if path.is_dir():
            return _folder(path.resolve(), uri)
        if path.is_file():
            return _file(path.resolve(), uri)
    except OSError as error:
        raise ModelLoadError(f"'{uri}' cannot be read: {error.strerror or type(error).__name__}.") from error
    except ValueError as error:  # a NUL byte in the path
        raise ModelLoadError(f"'{uri}' is not a valid path.") from error
    raise ModelLoadError(f"There is no model at '{uri}'.")


def _folder(path: Path, uri: str) -> Location:
    if (path / "MLmodel").is_file():
        return Location(path, Kind.MLFLOW)
    if _is_sentence_transformer(path):
        return Location(path, Kind.SENTENCE_TRANSFORMERS)
    if (path / "config.json").is_file():
        return Location(path, Kind.HUGGING_FACE)
    files = sorted(item for item in path.iterdir() if item.suffix in MODEL_SUFFIXES and item.is_file())
    if len(files) == 1:
        return _file(files[0], uri)
    if files:
        raise ModelLoadError(f"'{uri}' holds {len(files)} model files ({_names(files)}); name the one to serve.")
    raise ModelLoadError(f"'{uri}' is no model: it holds neither MLmodel, config.json nor a .gguf or .onnx file.")


def _names(files: list[Path]) -> str:
    return ", ".join(file.name for file in files[:3]) + (", …" if len(files) > 3 else "")


def _is_sentence_transformer(path: Path) -> bool:
    try:
        modules = json.loads((path / "modules.json").read_bytes())
    except (OSError, ValueError):
        return False
    types = [module.get("type") for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    return any(isinstance(name, str) and name.startswith("sentence_transformers.") for name in types)


def _file(path: Path, uri: str) -> Location:
    if path.name == "MLmodel":
        return Location(path.parent, Kind.MLFLOW)
    return Location(path, kind_of_file(path, uri))
