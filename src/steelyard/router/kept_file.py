"""The files that a router keeps for its next life: replaced in one step, durable, readable by this user only.

They hold hashes of tokens and names of tenants. `snapshot.py` and `usage_feed.py` write them, off the loop.
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Blocks until the disk has it. Raises OSError, and then the file is as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
