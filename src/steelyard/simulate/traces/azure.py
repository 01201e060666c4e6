"""Azure's traces of LLM inference (2023): arrival times and token counts of two production services.

Format: CSV with the header `TIMESTAMP,ContextTokens,GeneratedTokens`. Prompts have no hashes, so nothing is reused.
Attribution, wherever the data are used: Patel et al., Splitwise, ISCA 2024 (CC-BY-4.0).
"""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

from steelyard.simulate.requests import SimRequest, Trace

ORIGIN = "Azure LLM inference 2023 (Patel et al., Splitwise, ISCA 2024)"
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def load(path: Path, name: str) -> Trace:
    """Raises ValueError that names the line that is wrong."""
    requests: list[SimRequest] = []
    start: datetime | None = None
    with path.open(newline="") as file:
        rows = csv.reader(file)
        if tuple(next(rows, ())) != COLUMNS:
            raise ValueError(f"{path.name} does not begin with {','.join(COLUMNS)}.")
        for number, row in enumerate(rows, start=2):
            try:
                at = datetime.fromisoformat(row[0][:26])  # its seven decimals are one more than is understood
                start = start or at
                requests.append(SimRequest((at - start).total_seconds(), int(row[1]), int(row[2])))
            except (ValueError, IndexError) as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from error
    if not requests:
        raise ValueError(f"{path.name} holds no request.")
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, requests, block_tokens=512, duration_s=requests[-1].arrival_s + 1.0, origin=ORIGIN)
