"""The lifeline: a pipe whose write end only the supervisor holds. End-of-file on it means that the platform is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


def watch_lifeline(descriptor: int, gone: Callable[[], None]) -> None:
    """Calls `gone` once, on the running loop, when the supervisor has gone. Does nothing for descriptor -1."""
    if descriptor < 0:
        return
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if os.read(descriptor, 1) == b"":
            loop.remove_reader(descriptor)
            gone()

    os.set_inheritable(descriptor, False)  # replicas get it by name, nobody else by accident
    loop.add_reader(descriptor, readable)
