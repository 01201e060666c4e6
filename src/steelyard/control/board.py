"""What the reconcile loop tells of each endpoint's entities; the API reads it. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steelyard.control.records import ConfigRecord
from steelyard.control.states import EntityStatus


@dataclass(frozen=True, slots=True)
class Board:
    """What the last round said of an endpoint's entities, by configuration version and entity name.

    By version, so that a configuration keeps its statuses in the moment in which it is promoted.
    """

    statuses: Mapping[int, Mapping[str, EntityStatus]] = field(default_factory=dict)

    def of(self, config: ConfigRecord | None) -> Mapping[str, EntityStatus]:
        return self.statuses.get(config.version, {}) if config is not None else {}
