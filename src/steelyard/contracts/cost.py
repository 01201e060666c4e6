"""What a calibration is told, what it says while it runs, and what it leaves: the cost of one model version's requests.

Control starts `python -m steelyard.calibration <CalibrationSpec as JSON>` against a ready replica. It prints one
`CalibrationProgress` per line and, last, one `CalibrationEnd`; the end of its standard input ends it. Control keeps the
`Calibration` as `<calibrations_dir>/<name>.json`, one per served entity, model version and hardware. Terms are named
as in `policy/units.py`.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec


class LatencyTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What nine in ten requests shall meet, in seconds. None: no limit of this kind."""

    first_token_s: float | None = None
    per_token_s: float | None = None
    whole_s: float | None = None


class CalibrationSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is a ready replica's, `pid` its process's if that is on this machine.

    `target` None: derived from how fast the replica is alone. `kept`: the folder in which an earlier result for the
    same model, setup and hardware may be found and taken over; None: measure in any case.
    """

    endpoint: str
    served_entity: str
    address: str
    pid: int | None = None
    model_uri: str
    model_version: str | None = None
    budget_s: float | None = None  # None: what its kind of model needs
    target: LatencyTarget | None = None
    seed: int = 0
    setup: str = ""  # tells apart replicas of one model that were set up in different ways
    kept: str | None = None
    background: bool = False  # nobody asked for it: whoever asks for another ends it


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """A cost holds for the machine on which it was measured."""

    processor: str
    cores: int  # that the replica may use
    memory_bytes: int
    accelerators: list[str] = []

    @property
    def fingerprint(self) -> str:
        """Equal for machines that are alike; memory counts by whole gigabytes."""
        memory_gib = round(self.memory_bytes / 2**30)
        text = "\n".join([self.processor, str(self.cores), str(memory_gib), *sorted(self.accelerators)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class MixMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """One window: what was done in it per term, how long it took, and what the fitted cost says that it should."""

    mix: str
    concurrency: int
    held_out: bool
    in_target: bool
    totals: dict[str, float]
    seconds: float
    predicted_s: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Errors are relative: 0.1 is 10 %. `held_out_*` are of mixes that the fit has not seen; None: there were none."""

    endpoint: str
    served_entity: str
    model_uri: str
    model_version: str | None
    runtime: str | None
    hardware: Hardware
    created_ms: int
    took_s: float
    complete: bool  # False: the budget ended it
    concurrency: int  # requests at once with the highest rate within the target
    target: LatencyTarget
    coefficients: dict[str, float]  # MU per unit of the term
    held_out_median_error: float | None
    held_out_p95_error: float | None
    cross_validated_median_error: float | None
    largest: dict[str, int]  # sizes of the largest requests tried; what lies beyond is extrapolated
    model_hash: str = ""  # of the model's files and the setup; empty: they could not be read
    notes: list[str] = []
    windows: list[MixMeasured] = []


class CalibrationProgress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    done: int
    left: int  # about
    detail: str


class CalibrationEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """`failure` is one sentence where there is no result."""

    result: Calibration | None = None
    failure: str | None = None


CalibrationLine = CalibrationProgress | CalibrationEnd


class StoredCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """As kept on disk: for which endpoint (two may bear one name, one after the other), and the result."""

    endpoint_id: str
    result: Calibration


CalibrationState = Literal["RUNNING", "DONE", "FAILED"]
