"""`steelyard autoscaling replay`: decides again what a platform's autoscaler has decided, from its log.

Thin: the log is text, `policy/scaling_log.py` does the work. It talks to no platform.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.failures import CliError

if TYPE_CHECKING:
    from steelyard.policy.scaling_log import Replayed

autoscaling = typer.Typer(help="What the autoscaler decided, and why.", no_args_is_help=True)


@autoscaling.callback()
def _root() -> None:
    """What the autoscaler decided, and why."""


@autoscaling.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A decision log: HOME/autoscaling/decisions.jsonl.")],
    every: Annotated[bool, typer.Option("--all", help="Show every decision, not only those that changed.")] = False,
) -> None:
    """Decide again from a log and compare: exit status 1 if any decision comes out differently."""
    from steelyard.policy.scaling_log import replay as decide_again

    try:
        with file.open(encoding="utf-8") as lines:
            found = decide_again(lines)
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # also of bytes that are no text
        raise CliError(f"{file} cannot be replayed. {error}", "Give it a file that control has written.") from error
    for item in found if every else _changes(found):
        print(_line(item))
    others = [item for item in found if not item.same]
    for item in others:
        print(f"differs: {item.again.replicas} replicas, {item.again.reason}, at {_moment(item)} of {item.subject}")
    counts = Counter(str(item.again.reason) for item in found)
    for reason, count in counts.most_common():
        print(f"{count:>7}  {reason}")
    print(f"{len(found)} decisions, {len(others)} come out differently.")
    sys.stdout.flush()
    if others:
        raise CliError(f"{len(others)} of {len(found)} decisions come out differently.")


def _changes(found: Sequence[Replayed]) -> Iterable[Replayed]:
    for item in found:
        if item.recorded.replicas != item.recorded.numbers.get("before"):
            yield item


def _line(item: Replayed) -> str:
    decision = item.recorded
    figures = ", ".join(f"{name} {value:.4g}" for name, value in decision.numbers.items() if name != "before")
    before = decision.numbers.get("before", 0.0)
    return f"{_moment(item)}  {item.subject}  {before:g} → {decision.replicas}  {decision.reason}  ({figures})"


def _moment(item: Replayed) -> str:
    return f"{datetime.fromtimestamp(item.wall_ms / 1000, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"
