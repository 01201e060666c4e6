"""A source package whose build waits for a file, so that tests can look at an environment while it is being built.

Its build backend is part of it and needs nothing from any index.
"""

import io
import tarfile
from pathlib import Path

_BACKEND = """
import os, pathlib, time, zipfile

FOLDER = pathlib.Path({folder!r})


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    (FOLDER / "building").write_text(str(os.getpid()))
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
    name = "slow_package-1.0-py3-none-any.whl"
    info = "slow_package-1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("slow_package.py", "ANSWER = 42")
        wheel.writestr(f"{{info}}/METADATA", "Metadata-Version: 2.1\\nName: slow-package\\nVersion: 1.0\\n")
        wheel.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{{info}}/RECORD", "")
    return name
"""
_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "slow-package"
version = "1.0"
"""


def write_slow_package(folder: Path) -> None:
    """Into a folder that UV_FIND_LINKS may name. A build leaves its pid in `building` and goes on when `go` exists."""
    files = {"backend.py": _BACKEND.format(folder=str(folder)), "pyproject.toml": _PROJECT}
    files["PKG-INFO"] = "Metadata-Version: 2.1\nName: slow-package\nVersion: 1.0\n"
    with tarfile.open(folder / "slow_package-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"slow_package-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
