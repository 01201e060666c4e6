"""Fixtures shared by every room's tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
