"""Writes `docs/mlflow-compatibility.md` from the table: `PYTHONPATH=tests python -m support.scoring.document`.

A test compares the file with what this makes, so that the document cannot say anything that does not hold.
"""

from __future__ import annotations

from pathlib import Path

from support.scoring.case import Case
from support.scoring.cases import THEMES
from support.scoring.models import described

PATH = Path(__file__).parents[3] / "docs" / "mlflow-compatibility.md"
_WIDEST = 110
_INTRODUCTION = Path(__file__).with_name("introduction.md").read_text()


def write() -> str:
    """The whole document."""
    from mlflow.version import VERSION

    used = dict.fromkeys(case.model for theme in THEMES for case in theme.CASES)
    models = "\n".join(f"| {name} | {_code(described(name))} |" for name in used)
    count = sum(len(theme.CASES) for theme in THEMES)
    parts = [_INTRODUCTION.format(count=count, version=VERSION, models=models)]
    for theme in THEMES:
        parts.append(
            f"\n## {theme.TITLE}\n\n| case | model | request | MLflow | Steelyard | why |\n|---|---|---|---|---|---|\n"
        )
        parts += [_row(case) for case in theme.CASES]
    return "".join(parts)


def _row(case: Case) -> str:
    same = case.mlflow == case.ours
    ours = "the same" if same else _outcome(case.ours)
    cells = [case.id, case.model, _request(case), _outcome(case.mlflow), ours, case.why]
    return "| " + " | ".join(cells) + " |\n"


def _request(case: Case) -> str:
    text = case.shown or case.content.decode("utf-8", "backslashreplace")
    text = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t").replace("\ufeff", "\\ufeff")
    text = text if len(text) <= _WIDEST else text[:_WIDEST] + "…"
    shown = _code(text) if text else "(empty)"
    if case.media is None:
        return f"no Content-Type, {shown}"
    return shown if case.media == "application/json" else f"{_code(case.media)}, {shown}"


def _outcome(text: str) -> str:
    status, _, rest = text.partition(" ")
    if status == "200":
        return _code(rest.encode("utf-8", "backslashreplace").decode()) if rest else "an empty text"
    refused = "refused" if status.startswith("4") else "failed"
    return f"{refused}, {status}" + (f" {_code(rest)}" if rest else "")


def _code(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    PATH.write_text(write())
