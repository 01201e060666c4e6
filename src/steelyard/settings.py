"""Every setting of Steelyard, typed, in one place.

`Settings.from_env()` is called once per process, in its entry point; `to_env()` hands the same values to child
processes. Nothing else in the package reads `STEELYARD_*` variables. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may send before it is refused, for router and replica alike."""

    max_uri_bytes: int = 8 * 1024
    max_head_bytes: int = 64 * 1024  # request line + headers
    max_headers: int = 100
    max_body_bytes: int = 16 * 1024 * 1024
    max_arriving_bytes: int = 512 * 1024 * 1024  # bodies still on their way, of all connections together
    max_pipelined: int = 16  # requests held behind the one in progress on a connection
    max_connections: int = 20_000  # open at once, per server; beyond, the newest is closed at once
    head_timeout_s: float = 10.0  # from a request's first byte (or connect) to the end of its headers
    body_idle_timeout_s: float = 20.0  # between two pieces of a body
    body_timeout_s: float = 300.0  # for a whole body, however steadily it drips
    keep_alive_s: float = 75.0  # idle connection
    write_stall_s: float = 120.0  # a client that takes nothing of its reply for so long is cut off

    @classmethod
    def behind_router(cls) -> HttpLimits:
        """For a replica: what the router takes, and room for the headers that it adds."""
        router = cls()
        return cls(max_head_bytes=router.max_head_bytes + 4 * 1024, max_headers=router.max_headers + 20)


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path = field(default_factory=lambda: Path.home() / ".steelyard")
    host: str = "127.0.0.1"
    port: int = 8080
    routers: int = 1
    auth: bool = True
    store_url: str = ""  # empty: SQLite in `home`
    request_timeout_s: float = 297.0  # deadline of a request that names none
    queue_limit: int = 1024  # requests waiting per endpoint and router before 429
    drain_timeout_s: float = 30.0  # how long running requests may finish when a process stops
    start_timeout_s: float = 300.0  # from a replica's start to its readiness
    auto_calibration: bool = True  # new versions are calibrated by themselves
    calibration_quiet_s: float = 30.0  # without any request to the machine's replicas, before one begins
    calibration_budget_s: float = 0.0  # of one that begins by itself; 0: what its kind of model needs
    scale_to_zero_after_s: float = 1800.0  # without a request, where an entity may scale to zero
    autoscaling_speed: float = 1.0  # for tests: how much faster than the clock the autoscaler's time passes
    routing: str = "model_units"  # for developers who compare: or "p2c", "round_robin"
    log_level: str = "info"
    lifeline_fd: int = -1  # read end of the supervisor's pipe; end-of-file means that the platform is gone

    @property
    def sockets(self) -> Path:
        """Folder of this platform's Unix sockets: short, since a socket path holds 107 bytes, and private (0700)."""
        name = hashlib.sha256(str(self.home.resolve()).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"steelyard-{os.getuid()}-{name}"

    @property
    def control_address(self) -> str:
        return f"unix:{self.sockets / 'control.sock'}"

    def router_address(self, index: int) -> str:
        """Where router `index` answers /livez, /metrics and /ledger to the platform itself (not to clients)."""
        return f"unix:{self.sockets / f'router-{index}.sock'}"

    def replica_address(self, replica_id: str) -> str:
        return f"unix:{self.sockets / f'{replica_id}.sock'}"

    @property
    def replicas_dir(self) -> Path:
        """One folder per replica: its spec, its process record, its log, its failure."""
        return self.home / "replicas"

    @property
    def environments_dir(self) -> Path:
        """Python environments that were built for models, shared by all replicas."""
        return self.home / "environments"

    @property
    def runtimes_dir(self) -> Path:
        """What was found out about each model version: the verdict on its runtimes, and its converted forms."""
        return self.home / "runtimes"

    @property
    def calibrations_dir(self) -> Path:
        """What the requests of each served model version cost on this hardware, as calibration found it."""
        return self.home / "calibrations"

    @property
    def autoscaling_dir(self) -> Path:
        """What the autoscaler knows, and the log of its decisions."""
        return self.home / "autoscaling"

    @property
    def samples_dir(self) -> Path:
        return self.home / "samples"

    @property
    def logs_dir(self) -> Path:
        return self.home / "logs"

    @property
    def client_file(self) -> Path:
        """URL and token for the command line on this machine (mode 0600)."""
        return self.home / "client.json"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def database_url(self) -> str:
        return self.store_url or f"sqlite+aiosqlite:///{self.home / 'steelyard.db'}"

    @classmethod
    def from_env(cls, **overrides: Any) -> Settings:
        """Defaults, then `STEELYARD_<NAME>` variables, then `overrides` that are not None.

        Raises ValueError naming the variable that cannot be read.
        """
        values: dict[str, Any] = {}
        for item in fields(cls):
            variable = f"STEELYARD_{item.name.upper()}"
            text = os.environ.get(variable)
            if text is None:
                continue
            try:
                values[item.name] = _PARSERS[str(item.type)](text)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{variable}={text!r} is not a valid {item.type}.") from error
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)

    def to_env(self) -> dict[str, str]:
        """Variables from which a child's `from_env()` rebuilds these settings."""
        return {f"STEELYARD_{item.name.upper()}": str(getattr(self, item.name)) for item in fields(self)}


def _parse_bool(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


_PARSERS: dict[str, Any] = {"Path": Path, "str": str, "int": int, "float": float, "bool": _parse_bool}
