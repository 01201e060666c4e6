"""The one exception that commands raise, and how any exception becomes one line and a hint.

Used by every command; `main` calls `describe`. Prints nothing itself.
"""

from __future__ import annotations


class CliError(Exception):
    """`message` says what is wrong in one sentence, `hint` what to do; `status` is the exit status."""

    def __init__(self, message: str, hint: str = "", *, status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status

    def lines(self) -> list[str]:
        """What stderr shows."""
        hint = [f"hint: {one_line(self.hint)}"] if self.hint else []
        return [f"error: {one_line(self.message)}", *hint]


def usage_error(message: str, hint: str = "") -> CliError:
    """The command itself was written wrongly: exit status 2."""
    return CliError(message, hint, status=2)


def one_line(text: str) -> str:
    """`text` without line breaks or runs of blanks."""
    return " ".join(text.split())


def describe(error: Exception) -> CliError:
    """An error that no command foresaw, as a message for people."""
    return CliError(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        "This is a fault of Steelyard. STEELYARD_DEBUG=1 shows where it happened.",
    )
