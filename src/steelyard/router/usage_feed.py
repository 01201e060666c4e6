"""Brings what tenants used to control: collects the tallies every few seconds and sends them until control has them.

Started once by the process; at its end `flush` sends the rest. What control does not take waits in memory and in a file
beside the snapshot, which the router's next life sends: a kill loses what came since the last collection, a clean stop
nothing. A report keeps its number and content once it was sent, so that control counts none twice.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

import msgspec

from steelyard.contracts.usage_report import HOUR_MS, UsageReport, UsageRow
from steelyard.errors import SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.router.kept_file import replace_file
from steelyard.router.tally import Tally
from steelyard.wire.client import Pool
from steelyard.wire.fetch import fetch

EVERY_S = 5.0
_TIMEOUT_S = 10.0
_FLUSH_TIMEOUT_S = 2.0
_JSON = [(b"content-type", b"application/json")]

log = get_logger()


class Outbox:
    """Rows on their way. `source` names this life of the router."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._number = 0  # of the last report that was, or may have been, sent
        self._sent: list[UsageReport] = []  # oldest first
        self._rows: dict[tuple[int, str, str, str], UsageRow] = {}

    def collect(self, filled: list[Tally], hour_ms: int) -> None:
        """Take what the tallies hold, and empty the list."""
        tallies, filled[:] = list(filled), []
        for tally in tallies:
            for principal, taken in tally.drain().items():
                key = (hour_ms, tally.endpoint, tally.entity, principal)
                row = self._rows.get(key)
                if row is None:
                    row = self._rows[key] = UsageRow(*key)
                row.requests += taken.requests
                row.rows += taken.rows
                row.input_tokens += taken.input_tokens
                row.cached_tokens += taken.cached_tokens
                row.output_tokens += taken.output_tokens
                row.image_tokens += taken.image_tokens
                row.mmu += taken.mmu

    def next(self) -> UsageReport | None:
        """What is to be sent first; the same until it is acknowledged."""
        if not self._sent and self._rows:
            self._number += 1
            self._sent.append(self._unsent(self._number))
            self._rows = {}
        return self._sent[0] if self._sent else None

    def acknowledge(self) -> None:
        """Control has what was to be sent first."""
        del self._sent[0]

    def left(self) -> list[UsageReport]:
        """All that control has not acknowledged, as it will be sent."""
        return [*self._sent, *([self._unsent(self._number + 1)] if self._rows else [])]

    def resume(self, reports: list[UsageReport]) -> None:
        """Send these of an earlier life first."""
        self._sent = [*reports, *self._sent]

    def _unsent(self, number: int) -> UsageReport:
        return UsageReport(source=self._source, number=number, rows=list(self._rows.values()))


class UsageFeed:
    """`filled`: the tallies that are not empty; `path`: where the rest is kept while control is away."""

    def __init__(self, filled: list[Tally], pool: Pool, path: Path) -> None:
        self._filled = filled
        self._pool = pool
        self._path = path
        self._outbox = Outbox(uuid.uuid4().hex)
        self._kept = False  # there is a file
        self._keeping: asyncio.Future[None] | None = None  # which is being written
        self._refused = ""

    def load(self) -> None:
        """Take up what an earlier life could not send."""
        try:
            self._outbox.resume(msgspec.json.decode(self._path.read_bytes(), type=list[UsageReport]))
            self._kept = True
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            log.warning("usage_on_disk_unreadable", path=str(self._path), error=str(error))

    async def run(self) -> None:
        """Collect and send until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._send(_TIMEOUT_S)
            except Exception:  # requests go on; what was collected is kept
                log.exception("usage_not_sent")

    async def flush(self) -> None:
        """Send what there is, once nothing more comes; what control does not take stays in the file."""
        try:
            if self._keeping is not None:
                await self._keeping  # whoever waited for it was cancelled: it must not be the last that is written
            await self._send(_FLUSH_TIMEOUT_S)
        except Exception:  # the process ends in any case
            log.exception("usage_not_sent")

    async def _send(self, timeout_s: float) -> None:
        self._outbox.collect(self._filled, int(time.time() * 1000) // HOUR_MS * HOUR_MS)
        while (report := self._outbox.next()) is not None:
            refused = await self._post(report, timeout_s)
            if refused:
                if refused != self._refused:
                    log.warning("usage_waits", reason=refused)
                self._refused = refused
                self._keeping = asyncio.ensure_future(asyncio.to_thread(self._keep, self._outbox.left()))
                await asyncio.shield(self._keeping)
                return
            self._outbox.acknowledge()
        self._refused = ""
        if self._kept:
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
            self._kept = False

    async def _post(self, report: UsageReport, timeout_s: float) -> str:
        """Why control did not take it; empty if it did."""
        body = msgspec.json.encode(report)
        try:
            response = await fetch(
                self._pool, "POST", b"/internal/usage", headers=_JSON, body=body, timeout_s=timeout_s
            )
        except SteelyardError as error:
            return error.message
        return "" if response.status == 200 else f"Control answered {response.status}."

    def _keep(self, reports: list[UsageReport]) -> None:
        try:
            replace_file(self._path, msgspec.json.encode(reports))
            self._kept = True
        except OSError as error:
            log.warning("usage_not_kept", path=str(self._path), error=str(error))
