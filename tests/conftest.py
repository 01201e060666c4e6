"""Fixtures shared by every room's tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
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
