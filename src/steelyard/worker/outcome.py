"""A model's output in the form in which a proof compares it: JSON-ready values, and how wide its floats are.

Called by `answer.py` on what a variant returned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from steelyard.errors import ModelFailed
from steelyard.protocols.inputs import Records
from steelyard.protocols.mlflow import to_plain


def packed(output: Any) -> bytes:
    """As MessagePack, where NaN and the infinities survive, and integers differ from floats. Raises ModelFailed."""
    try:
        return msgspec.msgpack.encode(_without_raw(to_plain(output)))
    except (UnicodeEncodeError, RecursionError, OverflowError, TypeError, ValueError) as error:
        raise ModelFailed(f"The model's output cannot be written: {type(error).__name__}.") from None


def _without_raw(value: Any) -> Any:
    """Integers beyond 64 bits, which `to_plain` leaves as JSON text, have no MessagePack form: marked text here."""
    if isinstance(value, list):
        return [_without_raw(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_raw(item) for key, item in value.items()}
    return f"integer {bytes(value).decode()}" if isinstance(value, msgspec.Raw) else value


def float_bits(output: Any) -> int | None:
    """Of the widest float in an output, 32 or 64; None without floats."""
    parts = _parts(output)
    if parts is not None:
        return max((bits for part in parts if (bits := float_bits(part)) is not None), default=None)
    if type(output) is float:
        return 64
    dtype = getattr(output, "dtype", None)
    name = str(dtype)  # numpy's, pandas' and torch's: "float32", "Float64", "torch.float32"
    if "float" not in name.lower():
        return None
    return 64 if name.endswith(("64", "128")) else 32


def _parts(output: Any) -> Iterable[Any] | None:
    """What an output consists of; None for one that is whole."""
    if isinstance(output, Records):
        return output.arrays
    if isinstance(output, dict):
        return list(output.values())
    if isinstance(output, list | tuple):
        return output
    if hasattr(output, "dtypes") and hasattr(output, "columns"):
        return [output.iloc[:, place] for place in range(len(output.columns))]
    if str(getattr(output, "dtype", "")) == "object":
        return list(output.tolist()) if output.ndim else None
    return None
