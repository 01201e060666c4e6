"""Fixtures shared by every room's tests."""

from pathlib import Path

import pytest

from steelyard.observe.logs import configure_logs

SOURCES = Path(__file__).parents[1] / "src"


def pytest_configure(config: pytest.Config) -> None:
    configure_logs("tests")  # as in production: a trace with all local variables, the default, takes seconds
    # All that mypyc makes lies in one library; beside each module there is only a door to it, seldom built anew.
    built_s = max((library.stat().st_mtime for library in SOURCES.glob("*__mypyc.*.so")), default=0.0)
    for door in SOURCES.rglob("*.so"):
        source = door.with_name(door.name.partition(".")[0] + ".py")
        if source.exists() and source.stat().st_mtime > built_s:
            raise pytest.UsageError(f"{source} was edited after it was compiled: run `make compile` or `make plain`.")
    config.addinivalue_line("markers", "slow: starts a whole platform or loads a large model; runs after the others")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a running platform are slow, and the slow ones run last, so that a small fault shows at once."""
    for item in items:
        if {"platform", "own_platform"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def platform(tmp_path_factory):
    """One running platform with the sample models, shared by all tests that only talk to it."""
    from support.platform import Platform

    with Platform().start(tmp_path_factory.mktemp("platform") / "home", "--samples") as running:
        yield running
