"""What the requests of each served entity cost, as its latest calibration found it: what routers are told.

Read once from the folder where calibrations are kept, then told of each new one. The reconcile loop asks it for every
snapshot, so it holds no more than one cost per served entity and model version, and does no I/O afterwards.
"""

from __future__ import annotations

from pathlib import Path

from steelyard.contracts.cost import StoredCalibration
from steelyard.contracts.snapshot import CostView
from steelyard.control.calibrations import read_all_kept
from steelyard.control.definitions import EntityDefinition

_Key = tuple[str, str, str, str | None]


class Costs:
    def __init__(self) -> None:
        self._found: dict[_Key, tuple[int, CostView]] = {}  # with when it was found
        self._concurrency: dict[_Key, int] = {}
        self._known: set[tuple[_Key, str]] = set()  # with the hardware

    def load(self, folder: Path) -> None:
        """Whatever was kept there; blocks."""
        for stored in read_all_kept(folder):
            self.note(stored)

    def note(self, stored: StoredCalibration) -> None:
        """A calibration was kept; an older one of the same model changes nothing."""
        result = stored.result
        key = (stored.endpoint_id, result.served_entity, result.model_uri, result.model_version)
        self._known.add((key, result.hardware.fingerprint))
        known = self._found.get(key)
        if known is None or known[0] <= result.created_ms:
            view = CostView(coefficients=result.coefficients, uncertainty=result.held_out_median_error)
            self._found[key] = (result.created_ms, view)
            self._concurrency[key] = result.concurrency

    def is_known(self, endpoint_id: str, entity: EntityDefinition, hardware: str) -> bool:
        """It was calibrated on hardware with this fingerprint."""
        return ((endpoint_id, entity.name, entity.model_uri, entity.entity_version), hardware) in self._known

    def of(self, endpoint_id: str, entity: EntityDefinition) -> CostView | None:
        """None: it was not calibrated yet."""
        known = self._found.get((endpoint_id, entity.name, entity.model_uri, entity.entity_version))
        return None if known is None else known[1]

    def concurrency_of(self, endpoint_id: str, entity: EntityDefinition) -> int | None:
        """Requests at once with which one replica did best within its latency target. None: not calibrated yet."""
        return self._concurrency.get((endpoint_id, entity.name, entity.model_uri, entity.entity_version))
