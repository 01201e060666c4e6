"""Text/CSV with a header line, as columns of text; an empty unquoted cell is a missing value.

The types come later, from the model's signature (`coerce.py`), so that the same row means the same thing in CSV and in
JSON. Called by `request.py` only.
"""

from __future__ import annotations

import csv
import io

from steelyard.errors import BadRequest


def read_csv(body: bytes) -> dict[str, list[str | None]]:
    """Column name → cells. Raises BadRequest."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not valid UTF-8 (byte {error.start}).") from None
    try:
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except csv.Error as error:
        raise BadRequest(f"The body is not valid CSV: {error}.") from None
    if not rows:
        raise BadRequest("The body is empty; send CSV with a header line.")
    header, *records = rows
    if len(set(header)) != len(header):
        raise BadRequest("The CSV header holds a name twice.")
    for number, row in enumerate(records, start=1):
        if len(row) != len(header):
            raise BadRequest(f"Row {number} of the CSV has {len(row)} values for {len(header)} columns.")
    return {name: [row[place] or None for row in records] for place, name in enumerate(header)}
