"""Whether the platform's own environment will do: pins, extras, markers and local labels against real metadata."""

from importlib import metadata

import pytest

from steelyard.packages.requirements import Requirements
from steelyard.packages.satisfied import PYTHON_HERE, fingerprint, satisfied_here

NUMPY = metadata.version("numpy")


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """Two packages as pip leaves their metadata: a CPU build, and one whose extra needs what nobody has."""
    for name, version, more in (
        ("demo-torch", "2.13.0+cpu", ""),
        (
            "demo-base",
            "1.0rc1",
            'Provides-Extra: big\nRequires-Dist: numpy>=9999; extra == "big"\nRequires-Dist: six\n',
        ),
    ):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("lines", "difference"),
    [
        ((f"numpy=={NUMPY}", "msgspec>=0.18"), None),
        (("numpy",), None),
        (("numpy==1.0.0",), f"numpy 1.0.0 is wanted, {NUMPY} is here"),
        (("numpy<1",), f"numpy <1 is wanted, {NUMPY} is here"),
        (("no-such-package==1.5",), "no-such-package 1.5 is wanted and is not here"),
        (("no-such-package",), "no-such-package is wanted and is not here"),
        (("numpy==1.0", "no-such-package"), f"numpy 1.0 is wanted, {NUMPY} is here (1 more differs)"),
        (("numpy==1.0", "msgspec<0.1", "no-such-package"), f"numpy 1.0 is wanted, {NUMPY} is here (2 more differ)"),
        (("no-such-package==1; python_version < '3'",), None),
        (("no-such-package==1; extra == 'all'",), None),
        (("numpy==1.0; sys_platform == 'linux'",), f"numpy 1.0 is wanted, {NUMPY} is here"),
        (("demo-torch==2.13.0",), None),
        (("demo-torch==2.13.0+cu126",), None),  # the same release, built for another accelerator
        (("demo-torch==2.12.0+cpu",), "demo-torch 2.12.0+cpu is wanted, 2.13.0+cpu is here"),
        (("demo-torch==2.*",), None),
        (("demo-base>=0.9",), None),  # a pre-release that is here is as good as its number
        (("demo-base[big]",), f"numpy >=9999 is wanted, {NUMPY} is here"),
        (("demo-base[none]",), None),
        ((f"numpy=={NUMPY} --hash=sha256:00",), None),
        (("lib @ https://a.invalid/lib-1.0-py3-none-any.whl",), "lib is wanted from an address of its own"),
        (("git+https://a.invalid/lib.git",), "a package is wanted from an address of its own"),
    ],
)
def test_what_differs_is_said(lines, difference):
    assert satisfied_here(Requirements(lines)) == difference


def test_constraints_count_for_what_is_installed_only():
    assert satisfied_here(Requirements((), constraints=("no-such-package<1", "numpy>1"))) is None
    assert satisfied_here(Requirements((), constraints=("numpy<1",))) == f"numpy <1 is wanted, {NUMPY} is here"


def test_another_python_differs_and_setuptools_of_another_time_does_not():
    assert satisfied_here(Requirements((), python=PYTHON_HERE, beside=("setuptools==1.0",))) is None
    assert satisfied_here(Requirements((), python="3.9")) == f"Python 3.9 is wanted, {PYTHON_HERE} is here"


def test_the_fingerprint_follows_the_packages(installed):
    before = fingerprint(iter([installed]))
    assert before == fingerprint(iter([installed, installed / "missing"]))
    (installed / "demo_base-1.0rc1.dist-info").rename(installed / "demo_base-1.1.dist-info")
    assert fingerprint(iter([installed])) != before
