"""Encoders of categories as tables: one entry per column, from each known value to its place.

Used by `pipeline.py` for OneHotEncoder and OrdinalEncoder, after an imputer or alone. Raises Refused for options whose
result a table cannot give exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.worker.export.source import Refused


def codes_of(before: list[Any], encoder: Any, kinds: list[str]) -> list[dict[str, Any]]:
    """`kinds` are the columns' numpy dtypes. One code per column, as `runtimes/steps.py` reads it."""
    codes = []
    for place, (categories, kind) in enumerate(zip(encoder.categories_, kinds, strict=True)):
        values = np.asarray(categories).tolist()
        missing = next((index for index, value in enumerate(values) if value is None or value != value), None)  # noqa: PLR0124
        known = [None if index == missing else value for index, value in enumerate(values)]
        if any(not isinstance(value, (str, bool, int, float)) for value in known if value is not None):
            raise Refused("It has categories that are neither text nor numbers.")
        code = {"values": known, "missing": missing, "numbers": kind != "object"}
        codes.append(code)
        if type(encoder).__name__ == "OneHotEncoder":
            code.update(_one_hot(encoder, place, len(values)))
        else:
            code.update(_ordinal(encoder))
    for step in before:
        _impute(codes, step)
    if type(encoder).__name__ == "OrdinalEncoder" and not before and any(code["missing"] is not None for code in codes):
        raise Refused("Its OrdinalEncoder writes NaN for what is missing.")
    return codes


def _one_hot(encoder: Any, place: int, width: int) -> dict[str, Any]:
    if getattr(encoder, "_infrequent_enabled", False):
        raise Refused("Its OneHotEncoder puts rare categories together.")
    drops = getattr(encoder, "drop_idx_", None)
    drop = None if drops is None or drops[place] is None else int(drops[place])
    ignore = encoder.handle_unknown != "error"
    return {"width": width - (drop is not None), "drop": drop, "ignore": ignore}


def _ordinal(encoder: Any) -> dict[str, Any]:
    if getattr(encoder, "_infrequent_enabled", False):
        raise Refused("Its OrdinalEncoder puts rare categories together.")
    if encoder.handle_unknown == "error":
        return {"unknown": None}
    unknown = float(encoder.unknown_value)
    if np.isnan(unknown) or not np.isnan(getattr(encoder, "encoded_missing_value", np.nan)):
        raise Refused("Its OrdinalEncoder writes NaN or a chosen value for what is missing.")
    return {"unknown": unknown}


def _impute(codes: list[dict[str, Any]], step: Any) -> None:
    """An imputer before the encoder: what is missing gets the place of the value that it is filled with."""
    if type(step).__name__ != "SimpleImputer" or step.add_indicator:
        raise Refused(f"It has a {type(step).__name__} before an encoder.")
    if len(step.statistics_) != len(codes):
        raise Refused("Its SimpleImputer drops columns.")
    for code, value in zip(codes, np.asarray(step.statistics_).tolist(), strict=True):
        if value not in code["values"]:
            raise Refused("Its SimpleImputer fills in a value that its encoder does not know.")
        code["missing"] = code["values"].index(value)
