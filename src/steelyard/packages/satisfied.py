"""Whether the platform's own Python environment already holds what a model asks for, or the first thing that differs.

Called by `environment`, which builds nothing when it does. Reads the metadata of installed packages; imports none.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from steelyard.packages.requirements import Requirements

PYTHON_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def satisfied_here(requirements: Requirements) -> str | None:
    """None when every pin is satisfied, else what differs: "scikit-learn 1.5.0 is wanted, 1.9.1 is here"."""
    differences = list(_differences(requirements))
    if not differences:
        return None
    others = len(differences) - 1
    return differences[0] + (f" ({others} more {'differs' if others == 1 else 'differ'})" if others else "")


def fingerprint(site_packages: Iterator[Path]) -> str:
    """Changes when any package in one of the folders comes, goes or changes its version."""
    names = sorted(item.name for folder in site_packages if folder.is_dir() for item in folder.glob("*.dist-info"))
    return hashlib.sha256("\n".join([sys.version, *names]).encode()).hexdigest()[:24]


def fingerprint_here() -> str:
    """The same for the platform's own environment."""
    return fingerprint(Path(entry) for entry in sys.path if entry)


def _differences(requirements: Requirements) -> Iterator[str]:
    if requirements.python not in (None, PYTHON_HERE):
        yield f"Python {requirements.python} is wanted, {PYTHON_HERE} is here"
    for wheel in requirements.wheels:
        yield f"{wheel.name} is wanted as the wheel that the model brings"
    seen: set[str] = set()
    for line in requirements.lines:
        if "://" in line and " @ " not in line:
            yield "a package is wanted from an address of its own"
        else:
            yield from _unmet(Requirement(line.partition(" --hash")[0]), {"extra": ""}, seen)
    for line in requirements.constraints:
        constraint = Requirement(line)
        if _installed(constraint.name) is not None:
            yield from _unmet(constraint, {"extra": ""}, seen)


def _unmet(wanted: Requirement, surroundings: dict[str, str], seen: set[str]) -> Iterator[str]:
    """Of one requirement and of the extras that it names. `seen` keeps packages that name each other from looping."""
    if str(wanted) in seen or (wanted.marker is not None and not wanted.marker.evaluate(surroundings)):
        return
    seen.add(str(wanted))
    if wanted.url is not None:
        yield f"{wanted.name} is wanted from an address of its own"
        return
    installed = _installed(wanted.name)
    if installed is None:
        yield f"{_words(wanted)} is wanted and is not here"
    elif not _admits(wanted.specifier, installed):
        yield f"{_words(wanted)} is wanted, {installed} is here"
    else:
        for extra in wanted.extras:
            yield from _unmet_extra(wanted.name, extra, seen)


def _unmet_extra(name: str, extra: str, seen: set[str]) -> Iterator[str]:
    for line in metadata.requires(name) or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            yield from _unmet(requirement, {"extra": canonicalize_name(extra)}, seen)


def _installed(name: str) -> Version | None:
    try:
        return Version(metadata.version(name))
    except (metadata.PackageNotFoundError, InvalidVersion, TypeError):  # TypeError: metadata without a version
        return None


def _admits(specifiers: SpecifierSet, installed: Version) -> bool:
    """Exact pins compare without local labels: a CPU build and a CUDA build of one version are the same here."""
    for specifier in specifiers:
        if specifier.operator in ("==", "===") and "+" in specifier.version:
            if Version(specifier.version).public != installed.public:
                return False
        elif not specifier.contains(installed, prereleases=True):
            return False
    return True


def _words(wanted: Requirement) -> str:
    text = str(wanted.specifier)
    exact = text.startswith("==") and "," not in text and "*" not in text
    return f"{wanted.name} {text.lstrip('=') if exact else text}".rstrip()
