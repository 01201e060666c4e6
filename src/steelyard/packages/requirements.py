"""What a model's environment must hold: the pins that the model states and the little that our worker adds.

Called by `environment`. A model's requirements are another's text: what is harmless is honoured, and everything that
could run a command, read a file outside of the model or send one of our secrets away is refused with a sentence.
Nothing is resolved, fetched or installed here.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from steelyard.errors import ModelLoadError
from steelyard.packages.inspect import Package, logical_lines
from steelyard.packages.model_files import Kind

_WORKER_NEEDS = "msgspec>=0.19"
_OLD_SETUPTOOLS = "setuptools<81"  # the last ones that hold `pkg_resources`
_KEY_FORMAT = "1"  # raised when environments are built in a way that old ones do not match
_MAX_LINES = 2000
_MAX_DEPTH = 5  # of requirements files that name others
_LIBRARIES = {
    Kind.ONNX: "onnxruntime",
    Kind.LIGHTGBM: "lightgbm",
    Kind.XGBOOST: "xgboost",
    Kind.CATBOOST: "catboost",
    Kind.TORCHSCRIPT: "torch",
    Kind.SENTENCE_TRANSFORMERS: "sentence-transformers",
}
_ALTERNATIVES = {"mlflow": {"mlflow", "mlflow-skinny"}}
_HASH = re.compile(r"\s--hash[=\s]\s*(sha\d+:[0-9a-fA-F]+)")
_INDEX_OPTIONS = {"-i": "--index-url", "-f": "--find-links", "--pypi-url": "--index-url"}
_INDEX_OPTIONS |= {name: name for name in ("--index-url", "--extra-index-url", "--find-links")}
_UNIMPORTANT_OPTIONS = {"--prefer-binary", "--require-hashes", "--no-cache-dir", "--use-pep517"}
# pip takes the best version of all indexes, and models are written for pip.
_STRATEGY = ["--index-strategy", "unsafe-best-match"]
_PLAIN_OPTIONS = {"--pre": "--prerelease=allow", "--no-index": "--no-index"}
_FILE_OPTIONS = {"-r", "--requirement", "-c", "--constraint"}
_REFUSED_OPTIONS = {
    "-e": "an editable install has no place in a model; add the package to it as a wheel",
    "--trusted-host": "it switches off the check of the index's certificate",
    "--no-binary": "it would build packages from source though ready ones exist",
}
_ONLY_WHEELS = "only wheels inside of the model can be installed from a path"
_REFUSED_OPTIONS["--editable"] = _REFUSED_OPTIONS["-e"]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package that the model brings along. Its content, not its place, belongs to the environment's key."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Requirements:
    """Normalised: two models that want the same have equal `lines`, whatever the order and spelling of their files."""

    lines: tuple[str, ...]  # PEP 508, with hashes where the model states them
    constraints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # for uv, in the model's order
    wheels: tuple[Wheel, ...] = ()
    beside: tuple[str, ...] = ()  # installed too where an environment is built, but no reason to build one
    python: str | None = None  # "3.11"; None: the model does not say

    def key(self, python: str, platform: str) -> str:
        """Names the environment: hex, equal for equal wants on the same Python minor version and platform."""
        wheels = [f"{wheel.name} @ {wheel.sha256}" for wheel in self.wheels]
        parts = [_KEY_FORMAT, python, platform, *self.lines, "-c", *self.constraints, "--", *self.options]
        parts += [*self.beside, *wheels]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    def names(self) -> list[str]:
        """For people: no addresses, which may hold a password, and no hashes."""
        lines = [line.partition(" --hash")[0] for line in self.lines if not re.match(r"\S+://", line)]
        return [line.partition(" @ ")[0] for line in lines] + [wheel.path.name for wheel in self.wheels]

    def for_uv(self) -> list[str]:
        """The lines of the requirements file that uv installs."""
        return [*self.lines, *self.beside, *(f"{wheel.name} @ {wheel.path.as_uri()}" for wheel in self.wheels)]


def needed(package: Package) -> Requirements:
    """What the model states and what the worker needs beside it. Raises ModelLoadError for what is refused."""
    found = _Found(package.path if package.path.is_dir() else package.path.parent)
    found.take(package.requirements)
    for line in _own_needs(package):
        requirement = Requirement(line)
        if not found.names.intersection(_ALTERNATIVES.get(requirement.name, {requirement.name})):
            found.lines.add(line)
    return Requirements(
        lines=tuple(sorted(found.lines)),
        constraints=tuple(sorted(found.constraints)),
        options=tuple(found.options + _STRATEGY if "--extra-index-url" in found.options else found.options),
        wheels=tuple(sorted(found.wheels, key=lambda wheel: wheel.name)),
        beside=_setuptools(package, found.names),
        python=_minor(package.python_version),
    )


def _own_needs(package: Package) -> Iterator[str]:
    yield _WORKER_NEEDS
    if package.kind in _LIBRARIES:
        yield _LIBRARIES[package.kind]
    if package.kind is Kind.MLFLOW:
        # A model that states nothing conflicts with nothing: its mlflow version alone is no reason for an environment
        # in which its libraries would then be missing.
        version = _release(package.mlflow_version) if package.requirements else None
        yield "mlflow" if version is None else f"mlflow=={version}"


def _setuptools(package: Package, names: set[str]) -> tuple[str, ...]:
    """Old libraries import `pkg_resources` without saying so, and find it in the setuptools of their time only."""
    if "setuptools" in names or package.kind is not Kind.MLFLOW:
        return ()
    stated = package.build_requirements or ("setuptools",)
    pins = [line for line in stated if re.fullmatch(r"setuptools==[\w.]+", line)]
    return tuple(pins or [_OLD_SETUPTOOLS for line in stated if line == "setuptools"])


def _release(text: str | None) -> str | None:
    """A version that an index can have; None for a developer's build."""
    try:
        version = Version(text or "")
    except InvalidVersion:
        return None
    return None if version.is_devrelease else version.public


def _minor(text: str | None) -> str | None:
    found = re.match(r"(\d+\.\d+)", text or "")
    return found[1] if found else None


@dataclass(slots=True)
class _Found:
    """Collects what the lines of a model's requirements ask for; `folder` is the model's."""

    folder: Path
    lines: set[str] = field(default_factory=set)
    constraints: set[str] = field(default_factory=set)
    options: list[str] = field(default_factory=list)
    wheels: list[Wheel] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _count: int = 0

    def take(self, lines: Sequence[str], depth: int = 0, constraining: bool = False) -> None:
        self._count += len(lines)
        if self._count > _MAX_LINES or depth > _MAX_DEPTH:
            raise _refused("more lines or nested files than any model needs", "they may name each other in a circle")
        for line in lines:
            if "${" in line:
                raise _refused("an environment variable", "it could send a secret of this machine to another")
            if line.startswith("-"):
                self._take_options(line, depth, constraining)
            elif constraining:
                self.constraints.add(_plain(line).partition(" --hash")[0])
            else:
                self._take_requirement(line)

    def _take_requirement(self, line: str) -> None:
        if line.lower().endswith(".whl") and "://" not in line and " " not in line:
            self._take_wheel(line)
            return
        if re.match(r"[a-z+]+://", line, re.IGNORECASE):
            self.lines.add(_checked_url(line, "a package by its address"))
            return
        text = _plain(line)
        requirement = Requirement(text.partition(" --hash")[0])
        if requirement.url is None:
            self.lines.add(text)
        elif urlsplit(requirement.url).scheme in ("", "file"):
            self._take_wheel(urlsplit(requirement.url).path)
        else:
            _checked_url(requirement.url, requirement.name)
            self.lines.add(text)
        self.names.add(requirement.name)

    def _take_wheel(self, text: str) -> None:
        path = _inside(self.folder, text)
        if path.suffix.lower() != ".whl":
            raise _refused("a package at a path", _ONLY_WHEELS)
        try:
            name = canonicalize_name(parse_wheel_filename(path.name)[0])
        except InvalidWheelFilename:
            raise _refused(f"the wheel '{path.name}'", "its name is not that of a wheel") from None
        self.wheels.append(Wheel(name, path, hashlib.sha256(path.read_bytes()).hexdigest()))
        self.names.add(name)

    def _take_options(self, line: str, depth: int, constraining: bool) -> None:
        try:
            words = shlex.split(line)
        except ValueError:
            raise _refused("an option that cannot be read", "its quotes do not match") from None
        while words:
            name, equals, value = words.pop(0).partition("=")
            if name in _UNIMPORTANT_OPTIONS:
                continue
            if name in _PLAIN_OPTIONS and not constraining:
                self.options.append(_PLAIN_OPTIONS[name])
                continue
            if name not in _INDEX_OPTIONS and name not in _FILE_OPTIONS:
                raise _refused(f"the option {name[:40]}", _REFUSED_OPTIONS.get(name, "it is not one that is known"))
            if not equals:
                value = words.pop(0) if words else ""
            if name in _INDEX_OPTIONS:
                self.options += [_INDEX_OPTIONS[name], _checked_index(value, name)]
            else:
                text = _inside(self.folder, value).read_text(encoding="utf-8", errors="replace")
                self.take(logical_lines(text), depth + 1, constraining or name in ("-c", "--constraint"))


def _plain(line: str) -> str:
    """A PEP 508 requirement in its normal form, its hashes behind it."""
    hashes = sorted(_HASH.findall(line))
    try:
        requirement = Requirement(_HASH.sub("", line).strip())
        requirement.name = canonicalize_name(requirement.name, validate=True)
    except (InvalidRequirement, InvalidName):
        if "/" in line or line.startswith("."):
            raise _refused(
                "a package at a path", "only wheels inside of the model can be installed from a path"
            ) from None
        raise _refused(f"'{line[:80]}'", "it is no requirement that can be read") from None
    return " ".join([str(requirement), *(f"--hash={value}" for value in hashes)])


def _checked_url(url: str, what: str) -> str:
    if urlsplit(url).scheme.lower() not in ("https", "http", "git+https") or re.search(r"\s", url):
        raise _refused(f"{what} from an address of its own", "only https:// and git+https:// can be fetched")
    return url


def _checked_index(url: str, option: str) -> str:
    if urlsplit(url).scheme.lower() not in ("https", "http") or re.search(r"\s", url):
        raise _refused(f"the option {option} with a path", "a package index must be an http(s) address")
    return url


def _inside(folder: Path, text: str) -> Path:
    """A file of the model. Raises ModelLoadError for any other."""
    try:
        path = (folder / text).resolve()
        inside = path.is_relative_to(folder.resolve())
        found = path.is_file()
    except (OSError, ValueError):  # a name too long, a NUL byte, links in a circle
        raise _refused("a file", "its name cannot be that of a file") from None
    if not inside:
        raise _refused("a file outside of the model", "it belongs to the machine where the model was made")
    if not found:
        raise _refused(f"the file '{path.name}'", "the model does not hold it")
    return path


def _refused(what: str, why: str) -> ModelLoadError:
    return ModelLoadError(f"The model's requirements name {what}, which cannot be honoured: {why}.")
