"""An error of `errors.py` as a message, and back: what is raised in the worker is raised again in the replica.

Only the class's name, its message, `param` and `retry_after_s` cross; never a trace or a cause.
"""

from __future__ import annotations

from steelyard import errors
from steelyard.contracts.worker import Fault
from steelyard.errors import InternalError, SteelyardError

_PLAIN = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, SteelyardError) and kind.__init__ is SteelyardError.__init__
}


def fault_of(error: SteelyardError, cpu_s: float = 0.0, wall_s: float = 0.0) -> Fault:
    return Fault(type(error).__name__, error.message, error.param, error.retry_after_s, cpu_s, wall_s)


def error_of(fault: Fault) -> SteelyardError:
    """The same error; an InternalError where no class has that name."""
    kind = _PLAIN.get(fault.name, InternalError)
    return kind(fault.message, param=fault.param, retry_after_s=fault.retry_after_s)
