"""Values for one input of a model: likely ones, odd ones, and those where conversions are known to go wrong.

Made by `layout.py` from a type, the values of the model's input example, and hints (thresholds, categories) that an
exporter knows. What a model's inputs mean is unknown here, so likely values stay near the known ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from steelyard.runtimes.proof.numbers import is_countable, near

Array = NDArray[Any]
Shape = tuple[int, ...]

_FLOAT_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 10.0, 100.0, 1000.0, 1e-5, 1e-10, -1e-10, 1e5, 0.1, 1 / 3]
_FLOAT_EDGES += [16777217.0, 16777219.0, 2.0**31, 1 + 2**-24, 1 + 2**-52, 1e-35, -1e-35]  # float32 rounds these
_FLOAT_LARGE = [1e6, 1e10, 1e15, 1e20, 1e30, 3e38]
_FLOAT_EXTREME = [3.5e38, 1e39, 1e100, 1e300]  # beyond float32
_INTEGER_EDGES = [0, 1, -1, 2, 3, 10, 100, 127, 128, 255, 256, 1000, 32767, 65535]
_INTEGER_LARGE = [2**20, 2**24, 2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31)]
_INTEGER_EXTREME = [2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
_TEXT_EDGES = [
    "",
    " ",
    "unseen",
    "0",
    "1",
    "nan",
    "None",
    "null",
    "true",
    "é",
    "e\u0301",
    "日本語",
    "🚀",
    "a\nb",
    "\x00",
]
_TEXT_LONG = ["x" * 300, "many words " * 40]
_MOMENT_EDGES = ["1970-01-01", "1969-12-31T23:59:59.999999", "2000-02-29", "2024-12-31T23:59:59", "2024-03-10T02:30"]
_MOMENT_LARGE = ["1678-01-01", "2261-12-31T23:59:59"]


class Domain(Protocol):
    """Every method returns an array (rows, *the shape of one row's value); None: the type has no such values."""

    def typical(self, rng: Generator, picks: NDArray[np.intp]) -> Array:
        """Near the example's row of each pick; the same pick in all inputs keeps values that belong together."""

    def known(self, rng: Generator, rows: int) -> Array:
        """At, beside and between the hints."""

    def wide(self, rng: Generator, rows: int) -> Array:
        """Of any moderate magnitude."""

    def edges(self, rng: Generator, rows: int) -> Array:
        """Odd, but of moderate magnitude."""

    def large(self, rng: Generator, rows: int) -> Array | None: ...

    def extreme(self, rng: Generator, rows: int) -> Array | None: ...

    def infinite(self, rng: Generator, rows: int) -> Array | None: ...

    def missing(self, rows: int) -> Array | None: ...


class Numbers:
    """Integers and floats of one dtype; `tail` is the shape of one row's value, () for a column."""

    def __init__(self, dtype: np.dtype[Any], tail: Shape, example: Array | None, hints: Sequence[Any]) -> None:
        self.dtype, self.tail = dtype, tail
        self._whole = dtype.kind in "iu"
        self._example = None if example is None or not len(example) else example.astype(np.float64)
        numbers = [hint for hint in hints if isinstance(hint, int | float) and not isinstance(hint, bool)]
        self._hints = np.unique(_cast(np.array([x for x in numbers if x == x], dtype=np.float64), dtype))  # noqa: PLR0124
        seen = self._hints.astype(np.float64)
        if self._example is not None:
            seen = np.concatenate([seen, self._example.ravel()])
        seen = seen[np.isfinite(seen)]
        self._low, self._high = (
            (float(seen.min()), float(seen.max())) if seen.size else (0.0, 10.0 if self._whole else 1.0)
        )
        spread = float(seen.std()) if seen.size > 1 else 0.0
        self._scale = spread or max(abs(self._high) * 0.5, 1.0)

    def typical(self, rng: Generator, picks: NDArray[np.intp]) -> Array:
        shape = (len(picks), *self.tail)
        if self._example is None:
            return self._between(rng, len(picks))
        strength = rng.choice([0.0, 0.1, 1.0], size=shape)
        return _cast(self._example[picks] + rng.normal(size=shape) * strength * self._scale, self.dtype)

    def known(self, rng: Generator, rows: int) -> Array:
        between = self._between(rng, rows)
        if not self._hints.size or not is_countable(self.dtype):
            return between
        chosen = rng.choice(self._hints, size=(rows, *self.tail)).ravel()
        around = near(chosen, offsets=(-1, 0, 0, 1))
        beside = around[np.arange(len(chosen)), rng.integers(around.shape[1], size=len(chosen))]
        return np.where(rng.random((rows, *self.tail)) < 0.5, beside.reshape(rows, *self.tail), between)

    def wide(self, rng: Generator, rows: int) -> Array:
        shape = (rows, *self.tail)
        signs = rng.choice([-1.0, 1.0], size=shape)
        even = rng.normal(size=shape) * self._scale * 10.0 ** rng.integers(-2, 3, size=(rows, *(1 for _ in self.tail)))
        logarithmic = signs * 10.0 ** rng.uniform(-6, 6, size=shape)
        return _cast(np.where(rng.random(shape) < 0.5, even, logarithmic), self.dtype)

    def edges(self, rng: Generator, rows: int) -> Array:
        if self._whole:
            return self._of(rng, rows, _INTEGER_EDGES)
        limits = np.finfo(self.dtype)
        tiny = [float(limits.tiny), float(limits.smallest_subnormal), float(limits.tiny) / 2, float(limits.eps)]
        return self._of(rng, rows, _FLOAT_EDGES + tiny + [-number for number in tiny])

    def large(self, rng: Generator, rows: int) -> Array:
        return self._of(rng, rows, _INTEGER_LARGE if self._whole else _signed(_FLOAT_LARGE))

    def extreme(self, rng: Generator, rows: int) -> Array:
        if self._whole:
            return self._of(rng, rows, _INTEGER_EXTREME)
        return self._of(rng, rows, _signed([*_FLOAT_EXTREME, float(np.finfo(self.dtype).max)]))

    def infinite(self, rng: Generator, rows: int) -> Array | None:
        return None if self._whole else rng.choice(np.array([np.inf, -np.inf], self.dtype), size=(rows, *self.tail))

    def missing(self, rows: int) -> Array | None:
        return None if self._whole else np.full((rows, *self.tail), np.nan, dtype=self.dtype)

    def _between(self, rng: Generator, rows: int) -> Array:
        """Anywhere in the known range and a little beyond; with hints, between two of them that are neighbours."""
        shape = (rows, *self.tail)
        margin = (self._high - self._low) * 0.1 or 1.0
        if self._hints.size < 2:
            return _cast(rng.uniform(self._low - margin, self._high + margin, size=shape), self.dtype)
        hints = self._hints.astype(np.float64)
        stops = np.concatenate([[hints[0] - margin], hints, [hints[-1] + margin]])
        gap = rng.integers(len(stops) - 1, size=shape)
        share = rng.random(shape)
        return _cast(stops[gap] * (1 - share) + stops[gap + 1] * share, self.dtype)

    def _of(self, rng: Generator, rows: int, values: Sequence[int | float]) -> Array:
        if self._whole:
            limits = np.iinfo(self.dtype)
            pool = np.array([min(max(int(value), limits.min), limits.max) for value in values], dtype=self.dtype)
        else:
            pool = _cast(np.array(values, dtype=np.float64), self.dtype)
        return rng.choice(pool, size=(rows, *self.tail))


class Texts:
    """Strings of an object array. A missing one is None, which every string column takes."""

    def __init__(self, tail: Shape, example: Array | None, hints: Sequence[Any]) -> None:
        self.tail = tail
        self._example = example if example is not None and len(example) else None
        seen = [] if self._example is None else [value for value in self._example.ravel() if isinstance(value, str)]
        seen += [hint for hint in hints if isinstance(hint, str)]
        self._words = list(dict.fromkeys(seen)) or ["a", "b", "yes"]
        nearly = [form for word in self._words[:20] for form in (word.upper(), word.lower(), f"{word} ", f" {word}")]
        self._odd = [*_TEXT_EDGES, *(form for form in dict.fromkeys(nearly) if form not in self._words)]

    def typical(self, rng: Generator, picks: NDArray[np.intp]) -> Array:
        words = self._of(rng, len(picks), self._words)
        if self._example is None:
            return words
        return np.where(rng.random(words.shape) < 0.7, self._example[picks], words)

    def known(self, rng: Generator, rows: int) -> Array:
        return self._of(rng, rows, self._words)

    def wide(self, rng: Generator, rows: int) -> Array:
        return self._of(rng, rows, [*self._words[:200], *self._odd])

    def edges(self, rng: Generator, rows: int) -> Array:
        return self._of(rng, rows, self._odd)

    def large(self, rng: Generator, rows: int) -> Array:
        return self._of(rng, rows, _TEXT_LONG)

    def extreme(self, rng: Generator, rows: int) -> Array | None:
        return None

    def infinite(self, rng: Generator, rows: int) -> Array | None:
        return None

    def missing(self, rows: int) -> Array | None:
        return np.full((rows, *self.tail), None, dtype=object)

    def _of(self, rng: Generator, rows: int, words: Sequence[str]) -> Array:
        pool = np.empty(len(words), dtype=object)
        pool[:] = words
        result: Array = pool[rng.integers(len(pool), size=(rows, *self.tail))]
        return result


class Booleans:
    """True and false; None in an object array where the column is optional."""

    def __init__(self, tail: Shape, optional: bool) -> None:
        self.tail, self._optional = tail, optional

    def typical(self, rng: Generator, picks: NDArray[np.intp]) -> Array:
        return self.known(rng, len(picks))

    def known(self, rng: Generator, rows: int) -> Array:
        return rng.random((rows, *self.tail)) < 0.5

    wide = edges = known

    def large(self, rng: Generator, rows: int) -> Array | None:
        return None

    extreme = infinite = large

    def missing(self, rows: int) -> Array | None:
        return np.full((rows, *self.tail), None, dtype=object) if self._optional else None


class Moments:
    """Dates with a time; a missing one is NaT."""

    def __init__(self, tail: Shape, example: Array | None, dtype: np.dtype[Any]) -> None:
        self.tail, self.dtype = tail, dtype
        self._example = example if example is not None and len(example) else np.array(["2015-06-01"], dtype=dtype)

    def typical(self, rng: Generator, picks: NDArray[np.intp]) -> Array:
        base = self._example[picks % len(self._example)]
        if base.shape != (len(picks), *self.tail):
            base = np.broadcast_to(self._example.ravel()[0], (len(picks), *self.tail))
        return (base + self._seconds(rng, base.shape, 1e6)).astype(self.dtype)

    def known(self, rng: Generator, rows: int) -> Array:
        return self.typical(rng, rng.integers(len(self._example), size=rows))

    def wide(self, rng: Generator, rows: int) -> Array:
        shape = (rows, *self.tail)
        return (np.datetime64("2000-01-01", "s") + self._seconds(rng, shape, 3e8)).astype(self.dtype)

    def edges(self, rng: Generator, rows: int) -> Array:
        return rng.choice(np.array(_MOMENT_EDGES, dtype=self.dtype), size=(rows, *self.tail))

    def large(self, rng: Generator, rows: int) -> Array | None:
        return rng.choice(np.array(_MOMENT_LARGE, dtype=self.dtype), size=(rows, *self.tail))

    def extreme(self, rng: Generator, rows: int) -> Array | None:
        return None

    infinite = extreme

    def missing(self, rows: int) -> Array | None:
        return np.full((rows, *self.tail), "NaT", dtype=self.dtype)

    @staticmethod
    def _seconds(rng: Generator, shape: Shape, scale: float) -> Array:
        return (rng.normal(size=shape) * scale).astype(np.int64).astype("timedelta64[s]")


class Samples:
    """Values of a type that nothing is known of (bytes, arrays, objects): the example's own, in other combinations."""

    def __init__(self, example: Array) -> None:
        self._example = example

    def typical(self, rng: Generator, picks: NDArray[np.intp]) -> Array:
        return self._example[picks]

    def known(self, rng: Generator, rows: int) -> Array:
        return self._example[rng.integers(len(self._example), size=rows)]

    wide = edges = known

    def large(self, rng: Generator, rows: int) -> Array | None:
        return None

    extreme = infinite = large

    def missing(self, rows: int) -> Array | None:
        return None


def _signed(values: list[float]) -> list[float]:
    return values + [-value for value in values]


def _cast(values: NDArray[np.float64], dtype: np.dtype[Any]) -> Array:
    """Integers are rounded and clipped; a float that is beyond a narrower dtype becomes that one's largest."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.rint(np.nan_to_num(values))
        inside = np.clip(whole, float(limits.min), float(limits.max))
        if dtype.itemsize == 8:  # float64 has no 2^63 - 1; the next float below does fit
            inside = np.minimum(inside, np.nextafter(float(limits.max), 0.0))
        return inside.astype(dtype)
    limit = float(np.finfo(dtype).max)
    return np.where(np.isnan(values), np.nan, np.clip(values, -limit, limit)).astype(dtype)
