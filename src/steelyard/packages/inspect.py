"""What a model's files say of themselves, read without importing its libraries: flavors, signature, task, needs.

Called by the replica and by `runtimes/select.py`. The result is a plain value, so that choosing a runtime is a pure
decision. Raises ModelLoadError when the files contradict their kind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from steelyard.errors import ModelLoadError
from steelyard.packages.resolve import Kind, Location


@dataclass(frozen=True, slots=True)
class Package:
    """`None` and empty mean that the files do not say. Signatures are the JSON texts that MLflow writes."""

    path: Path
    kind: Kind
    flavors: tuple[str, ...] = ()  # MLflow only
    loader: str | None = None  # the Python module that loads the pyfunc flavor
    signature_inputs: str | None = None
    signature_params: str | None = None
    from_type_hints: bool = False  # the signature mirrors Python type hints, so inputs pass through undecoded
    example: bytes | None = None  # the model's own input example, as a body for /invocations
    task: str | None = None  # "llm/v1/chat", "agent/v1/chat", …
    streamable: bool = False
    requirements: tuple[str, ...] = ()
    mlflow_version: str | None = None
    architecture: str | None = None  # Hugging Face only: "LlamaForCausalLM"


def inspect_package(location: Location) -> Package:
    """The package's own description. Raises ModelLoadError."""
    if location.kind is Kind.MLFLOW:
        return _mlflow(location.path)
    if location.kind is Kind.HUGGING_FACE:
        return _hugging_face(location.path)
    return Package(location.path, Kind.GGUF)


def _mlflow(path: Path) -> Package:
    meta = _read_yaml(path / "MLmodel")
    flavors = _mapping(meta.get("flavors"))
    if not flavors:
        raise ModelLoadError(f"The MLmodel file in '{path}' names no flavor.")
    pyfunc = _mapping(flavors.get("python_function"))
    signature = _mapping(meta.get("signature"))
    metadata = _mapping(meta.get("metadata"))
    return Package(
        path=path,
        kind=Kind.MLFLOW,
        flavors=tuple(map(str, flavors)),
        loader=_text(pyfunc.get("loader_module")),
        signature_inputs=_text(signature.get("inputs")),
        signature_params=_text(signature.get("params")),
        from_type_hints=bool(meta.get("is_signature_from_type_hint")),
        example=_example(path, _mapping(meta.get("saved_input_example_info"))),
        task=_text(metadata.get("task")),
        streamable=bool(pyfunc.get("streamable")),
        requirements=_requirements(path),
        mlflow_version=_text(meta.get("mlflow_version")),
    )


def _hugging_face(path: Path) -> Package:
    try:
        config = msgspec.json.decode((path / "config.json").read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelLoadError(f"'{path / 'config.json'}' cannot be read: {error}.") from error
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ModelLoadError(f"'{path / 'config.json'}' names no architecture.")
    return Package(path, Kind.HUGGING_FACE, architecture=architectures[0])


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415  (of the mlflow extra)
    except ImportError:
        raise ModelLoadError("MLflow models need mlflow; install steelyard[mlflow].") from None
    try:
        meta = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"'{path}' cannot be read: {type(error).__name__}.") from error
    if not isinstance(meta, dict):
        raise ModelLoadError(f"'{path}' is not an MLmodel file.")
    return meta


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _example(path: Path, info: dict[str, Any]) -> bytes | None:
    """None when there is none, or it is in a form that only mlflow reads (sparse matrices, old tensor files)."""
    try:
        if serving := _text(info.get("serving_input_path")):
            return (path / serving).read_bytes()
        if info.get("type") == "dataframe" and info.get("pandas_orient") == "split":
            return b'{"dataframe_split":%b}' % (path / str(info.get("artifact_path"))).read_bytes()
    except OSError:
        return None
    return None


def _requirements(path: Path) -> tuple[str, ...]:
    try:
        lines = (path / "requirements.txt").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
