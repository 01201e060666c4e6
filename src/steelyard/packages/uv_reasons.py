"""One clause that says why uv failed, taken from the lines that it wrote for people.

Called by `environment` to make the user's sentence; the whole text is in the replica's log. Pure. What is not
recognised is shortened, not hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_CHARACTERS = 300
_FRAME = re.compile(r"^[\s×╰─▶├│]+")
_MARKER = re.compile(r"\{[^}]*\}")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"there (?:is|are) no versions? of (\S+) and you require \1[ ,.]"), r"no version of \1 exists"),
    (re.compile(r"(\S+) was not found in the package registry"), r"the package index has no package \1"),
    (
        re.compile(r"(\S+) was not found in the (?:cache|provided package locations)"),
        r"uv's cache does not hold \1 and the network is switched off",
    ),
    (re.compile(r"(\S+) has no (?:usable )?wheels with a matching"), r"\1 has no build for this Python and machine"),
    (re.compile(r"Hash mismatch for `([^`]+)`"), r"the hash of \1 is not the one that the model states"),
    (
        re.compile(r"Failed to (?:download and )?build `([^`]+)`"),
        r"\1 has no ready build for this Python and machine, and building it from source failed",
    ),
    (re.compile(r"HTTP status \w+ error \((\d+ [A-Za-z ]+)\)"), r"the package index answered \1"),
    (
        re.compile(r"dns error|tcp connect error|error sending request|operation timed out|Could not connect"),
        "the package index cannot be reached and uv's cache does not hold everything",
    ),
)


def disk_is_full(lines: Sequence[str]) -> bool:
    return any("No space left on device" in line or "Disk quota exceeded" in line for line in lines)


def reason(lines: Sequence[str]) -> str:
    """Without a full stop: "no version of scikit-learn==99.0 exists"."""
    text = _MARKER.sub("", " ".join(_failure(lines)))
    for pattern, words in _RULES:
        found = pattern.search(text)
        if found:
            return found.expand(words)
    cause = text.partition("cause: ")[2] or text.partition("error: ")[2] or text
    cause = re.split(r",? we can conclude| cause: | hint: ", cause)[0].removeprefix("Because ")
    cause = re.sub(r"\byou require\b", "the model requires", cause).replace("your requirements", "the requirements")
    cause = cause.strip().rstrip(".")
    return (cause[:_MAX_CHARACTERS] + ("…" if len(cause) > _MAX_CHARACTERS else "")) or "uv gave no reason"


def _failure(lines: Sequence[str]) -> list[str]:
    """From uv's error to the end of its causes: what a failed build itself printed comes behind an empty line."""
    start = next((place for place, line in enumerate(lines) if line.lstrip().startswith(("error:", "×"))), 0)
    kept = []
    for line in lines[start:]:
        text = _FRAME.sub("", line)
        if not text:
            break
        kept.append(text)
    return kept
