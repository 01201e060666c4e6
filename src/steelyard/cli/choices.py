"""Names that an option may take, for commands whose options can be repeated. It knows no command."""

from __future__ import annotations

from collections.abc import Sequence


def among(chosen: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    """The chosen ones in the order of the known; all where none is chosen. Raises ValueError."""
    unknown = sorted(set(chosen or ()) - set(known))
    if unknown:
        raise ValueError(f"No {what} is named {', '.join(unknown)}. Known: {', '.join(known)}.")
    return [name for name in known if not chosen or name in chosen]
