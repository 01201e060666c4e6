"""How many threads native libraries use for one call: BLAS, OpenMP and torch, told again while the worker runs.

At its start a worker gets the number in its environment; when the replica starts more workers beside it, each gets
fewer. Called by the service.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress


def use_threads(count: int) -> None:
    """From now on. What a library does not let us change is left."""
    with suppress(Exception):  # of libraries that may be of any release
        importlib.import_module("threadpoolctl").threadpool_limits(count)
    torch = sys.modules.get("torch")
    if torch is not None:
        with suppress(Exception):
            torch.set_num_threads(count)
