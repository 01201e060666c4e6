"""An earlier result for the same model: equal files, set up alike, on the same runtime and hardware cost the same.

`runner.py` asks before it measures, and puts the hash into what it leaves. Blocks while it reads; never raises.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from steelyard.contracts.cost import Calibration, CalibrationSpec, StoredCalibration
from steelyard.errors import SteelyardError
from steelyard.observe.hardware import hardware
from steelyard.packages.resolve import resolve
from steelyard.runtimes.verdicts import fingerprint


def model_hash(spec: CalibrationSpec) -> str:
    """Empty when the files cannot be read from here."""
    try:
        return fingerprint(resolve(spec.model_uri, spec.model_version).path, [spec.setup])
    except (SteelyardError, OSError):
        return ""


def find(spec: CalibrationSpec, hashed: str, runtime: str | None) -> Calibration | None:
    """The latest that was completed, as a result for `spec`; None where nothing fits, or none is wanted."""
    if spec.kept is None or not hashed:
        return None
    here = hardware().fingerprint
    fitting = [
        result
        for result in _kept(Path(spec.kept))
        if result.complete
        and (result.model_hash, result.runtime, result.hardware.fingerprint) == (hashed, runtime, here)
    ]
    if not fitting:
        return None
    found = max(fitting, key=lambda result: result.created_ms)
    note = f"Measured on {found.served_entity!r} of endpoint {found.endpoint!r}, which serves the same files."
    return msgspec.structs.replace(
        found,
        endpoint=spec.endpoint,
        served_entity=spec.served_entity,
        model_uri=spec.model_uri,
        model_version=spec.model_version,
        notes=[note, *(earlier for earlier in found.notes if not earlier.startswith("Measured on "))],
    )


def _kept(folder: Path) -> list[Calibration]:
    found: list[Calibration] = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(path.read_bytes(), type=StoredCalibration).result)
    return found
