"""What a model's files say of themselves, read without importing its libraries: flavors, signature, task, needs.

Called by the replica and by `runtimes/select.py`. The result is a plain value, so that choosing a runtime is a pure
decision. Raises ModelLoadError when the files contradict their kind.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from steelyard.errors import ModelLoadError
from steelyard.packages.model_files import Kind
from steelyard.packages.resolve import Location

_COMMENT = re.compile(r"(^|\s)#.*$")


@dataclass(frozen=True, slots=True)
class Package:
    """`None` and empty mean that the files do not say. Signatures are the JSON texts that MLflow writes."""

    path: Path
    kind: Kind
    flavors: tuple[str, ...] = ()  # MLflow only
    loader: str | None = None  # the Python module that loads the pyfunc flavor
    signature_inputs: str | None = None
    signature_outputs: str | None = None
    signature_params: str | None = None
    from_type_hints: bool = False  # the signature mirrors Python type hints, so inputs pass through undecoded
    example: bytes | None = None  # the model's own input example, as a body for /invocations
    task: str | None = None  # "llm/v1/chat", "agent/v1/chat", …
    streamable: bool = False
    requirements: tuple[str, ...] = ()  # one requirement or option each, comments stripped, continuations joined
    build_requirements: tuple[str, ...] = ()  # "setuptools==65.5.0": what else was in the environment that saved it
    python_version: str | None = None  # that the model was saved under: "3.11.7"
    mlflow_version: str | None = None
    architecture: str | None = None  # Hugging Face only: "LlamaForCausalLM"
    size_bytes: int = 0  # of all its files


def inspect_package(location: Location) -> Package:
    """The package's own description. Raises ModelLoadError."""
    if location.kind is Kind.MLFLOW:
        return _mlflow(location.path)
    if location.kind is Kind.HUGGING_FACE:
        return _hugging_face(location.path)
    task = "llm/v1/embeddings" if location.kind is Kind.SENTENCE_TRANSFORMERS else None
    return Package(location.path, location.kind, task=task, size_bytes=_size_bytes(location.path))


def flavors_of(path: Path) -> dict[str, Any]:
    """What an MLmodel file says of each flavor, in MLflow's own words. Raises ModelLoadError."""
    return {str(name): _mapping(said) for name, said in _mapping(_read_yaml(path / "MLmodel").get("flavors")).items()}


def _mlflow(path: Path) -> Package:
    meta = _read_yaml(path / "MLmodel")
    flavors = _mapping(meta.get("flavors"))
    if not flavors:
        raise ModelLoadError(f"The MLmodel file in '{path}' names no flavor.")
    pyfunc = _mapping(flavors.get("python_function"))
    signature = _mapping(meta.get("signature"))
    metadata = _mapping(meta.get("metadata"))
    conda = _optional_yaml(path / "conda.yaml")
    python_env = _optional_yaml(path / "python_env.yaml")
    return Package(
        path=path,
        kind=Kind.MLFLOW,
        flavors=tuple(map(str, flavors)),
        loader=_text(pyfunc.get("loader_module")),
        signature_inputs=_text(signature.get("inputs")),
        signature_outputs=_text(signature.get("outputs")),
        signature_params=_text(signature.get("params")),
        from_type_hints=bool(meta.get("is_signature_from_type_hint")),
        example=_example(path, _mapping(meta.get("saved_input_example_info"))),
        task=_text(metadata.get("task")),
        streamable=bool(pyfunc.get("streamable")),
        requirements=_requirements(path, conda),
        build_requirements=tuple(map(str, _sequence(python_env.get("build_dependencies")))),
        python_version=_python_version(python_env, conda, pyfunc),
        mlflow_version=_text(meta.get("mlflow_version")),
        size_bytes=_size_bytes(path),
    )


def _hugging_face(path: Path) -> Package:
    try:
        config = msgspec.json.decode((path / "config.json").read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelLoadError(f"'{path / 'config.json'}' cannot be read: {error}.") from error
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ModelLoadError(f"'{path / 'config.json'}' names no architecture.")
    return Package(path, Kind.HUGGING_FACE, architecture=architectures[0], size_bytes=_size_bytes(path))


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
        raise ModelLoadError(f"'{path}' is no {path.name} file as MLflow writes it.")
    return meta


def _optional_yaml(path: Path) -> dict[str, Any]:
    return _read_yaml(path) if path.is_file() else {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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


def _requirements(path: Path, conda: dict[str, Any]) -> tuple[str, ...]:
    """From requirements.txt, else the pip section of conda.yaml (what models had before MLflow 1.17)."""
    try:
        return logical_lines((path / "requirements.txt").read_text(encoding="utf-8"))
    except FileNotFoundError:
        pip = [item["pip"] for item in _sequence(conda.get("dependencies")) if isinstance(item, dict) and "pip" in item]
        lines = [str(line) for section in pip if isinstance(section, list) for line in section]
        return logical_lines("\n".join(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"'{path / 'requirements.txt'}' cannot be read: {type(error).__name__}.") from error


def logical_lines(text: str) -> tuple[str, ...]:
    """A requirements file without its comments and empty lines, a line and its continuations as one."""
    stripped = (_COMMENT.sub("", line).strip() for line in text.replace("\\\n", " ").splitlines())
    return tuple(line for line in stripped if line)


def _python_version(python_env: dict[str, Any], conda: dict[str, Any], pyfunc: dict[str, Any]) -> str | None:
    """What python_env.yaml says, else conda.yaml (`python=3.11.7`), else the MLmodel file."""
    for value in (python_env.get("python"), *_sequence(conda.get("dependencies"))):
        found = re.fullmatch(r"(?:python\s*={1,3}\s*)?(\d+\.\d+(?:\.\d+)?)\S*", str(value))
        if found:
            return found[1]
    return _text(pyfunc.get("python_version"))


def _size_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
