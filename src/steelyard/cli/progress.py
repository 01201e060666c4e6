"""Shows what several things are doing while one waits: a live list on a terminal, plain lines anywhere else.

Used by `up` and `deploy`. It only prints; deciding when something is done is the caller's.
"""

from __future__ import annotations

import sys
import time
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table


class Mark(Enum):
    WORKING = "working"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class Progress(Protocol):
    """Rows by name, in the order of their first mention. Use in a `with` block."""

    def show(self, name: str, text: str, mark: Mark = Mark.WORKING) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress() -> Progress:
    """The kind that suits stdout."""
    return LiveProgress() if sys.stdout.isatty() else LineProgress()


class LineProgress:
    """One line whenever a row's text changes, as logs and pipes like it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def show(self, name: str, text: str, mark: Mark = Mark.WORKING) -> None:
        line = text if mark in {Mark.WORKING, Mark.DONE} else f"{mark.value}: {text}"
        if self._texts.get(name) != line:
            self._texts[name] = line
            print(f"{name}: {line}", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveProgress:
    """A list that redraws in place, with a spinner and the seconds so far before what is still at work."""

    _GLYPHS = {Mark.DONE: "[green]✓[/]", Mark.SKIPPED: "[yellow]–[/]", Mark.FAILED: "[red]✗[/]"}

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, Mark]] = {}
        self._started_s: dict[str, float] = {}
        self._took_s: dict[str, float] = {}
        self._live: Live | None = None
        self._spinner: Spinner | None = None

    def show(self, name: str, text: str, mark: Mark = Mark.WORKING) -> None:
        now_s = time.monotonic()
        self._started_s.setdefault(name, now_s)
        self._rows[name] = (text, mark)
        if mark is Mark.WORKING:
            self._took_s.pop(name, None)
        else:
            self._took_s.setdefault(name, now_s - self._started_s[name])

    def __enter__(self) -> Self:
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._table, refresh_per_second=8)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def _table(self) -> Table:
        from rich.markup import escape
        from rich.table import Table

        assert self._spinner
        table = Table.grid(padding=(0, 2))
        now_s = time.monotonic()
        for name, (text, mark) in self._rows.items():
            glyph = self._GLYPHS.get(mark) or self._spinner.render(now_s)
            took_s = self._took_s.get(name, now_s - self._started_s[name])
            table.add_row(glyph, escape(name), escape(text), f"[dim]{took_s:.0f} s[/]")
        return table
