"""The matrix's fleet, and the table of who served what at the end of the run.

`STEELYARD_ZOO=FOLDER` keeps the built models in that folder and takes them from there the next time.
"""

import os
from pathlib import Path

import pytest

from support.zoo.fleet import Fleet, Served
from support.zoo.nursery import Nursery

_SERVED = pytest.StashKey[dict[str, Served]]()


@pytest.fixture(scope="module")
def served_by(request) -> dict[str, Served]:
    """Model → what served it; printed after the run."""
    return request.config.stash.setdefault(_SERVED, {})


@pytest.fixture(scope="module")
def fleet(request, tmp_path_factory, platform):
    names = [
        item.callspec.params["model"]
        for item in request.session.items
        if item.path == request.path and "model" in getattr(getattr(item, "callspec", None), "params", {})
    ]
    kept = os.environ.get("STEELYARD_ZOO")
    root = Path(kept) if kept else tmp_path_factory.mktemp("zoo")
    root.mkdir(parents=True, exist_ok=True)
    with Nursery(root, names) as nursery, Fleet(platform, nursery, names) as fleet:
        yield fleet


def pytest_terminal_summary(terminalreporter, config) -> None:
    served = config.stash.get(_SERVED, {})
    if served:
        terminalreporter.section("who served the matrix")
        for name, how in served.items():
            terminalreporter.write_line(f"{name:38} {how.runtime:10} {how.reason}")
