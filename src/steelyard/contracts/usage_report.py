"""What tenants used, from a router to control: `POST /internal/usage` on control's socket, every few seconds.

A report that was not answered is sent again as it was: control knows by `source` and `number` which it has counted.
"""

from __future__ import annotations

import msgspec

HOUR_MS = 3_600_000


class UsageRow(msgspec.Struct, array_like=True):
    """What one tenant's requests at one served entity took, within one hour."""

    hour_ms: int  # its begin, since the epoch
    endpoint: str
    served_entity: str
    principal: str
    requests: int = 0
    rows: int = 0
    input_tokens: int = 0  # of text, the cached ones included
    cached_tokens: int = 0
    output_tokens: int = 0
    image_tokens: int = 0
    mmu: int = 0  # thousandths of model units


class UsageReport(msgspec.Struct, kw_only=True):
    source: str  # one life of a router
    number: int  # rises with every report of a source
    rows: list[UsageRow]
