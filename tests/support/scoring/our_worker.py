"""Our side of the table, in this process: what a model's worker answers, and what the replica's own decoder reads.

The same decoder, model code and renderer as in a replica; only the sockets between them are left out.
"""

from __future__ import annotations

from pathlib import Path

from steelyard.errors import SteelyardError
from steelyard.protocols.media import media_of
from steelyard.protocols.query import Dialect, Query
from support.scoring.case import Case
from support.scoring.mlflow_server import told
from support.workers import Inside


class OurWorker:
    """One loaded model. `outcome` says what it answers, in the table's words."""

    def __init__(self, model: Path) -> None:
        self._inside = Inside(model)

    def outcome(self, case: Case) -> str:
        media = None if case.media is None else case.media.encode()
        try:
            query = Query(Dialect.MLFLOW, case.content, media_of(media, case.content))
            return told(200, self._inside.answering.answer(query, "pyfunc").body)
        except SteelyardError as error:
            return f"{error.status} {error.code if error.status >= 500 else error.param or ''}".strip()
