"""The requests that calibration asks for: shapes, mixes of them, and which ones tell the terms of a cost apart.

**Inputs** What the model takes (`Limits`) and the largest sizes that time allows (`Sizes`).
**Parameters** `JITTER` = 30 % about a shape's sizes, so that closed loops do not fall into step.
**Trade-offs** Few, far apart shapes first: a fit needs corners. Mixes then show what shapes do to one another in a
batch. Parts of a mix bring about equal work, not equal numbers, or the long requests would drown the short ones.
**Failure modes** What lies beyond the largest sizes is extrapolated.

`calibration_grid.py` decides when each runs; whoever generates load draws requests from a mix. Randomness is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from steelyard.policy.units import Features

JITTER = 0.3
FEW = 4  # output tokens of a request that is nearly all prompt
_SHORT = 16  # tokens of a prompt that is nearly all instruction


@dataclass(frozen=True, slots=True)
class Shape:
    """The mean sizes of a kind of request."""

    input_tokens: int = 0  # without the cached ones
    output_tokens: int = 0
    cached_tokens: int = 0  # of a head that was sent before
    image_tokens: int = 0
    rows: int = 0

    @property
    def features(self) -> Features:
        return Features(
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            image_tokens=self.image_tokens,
            rows=self.rows,
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """`parts`: shapes and their shares of the requests, which sum to one."""

    name: str
    parts: tuple[tuple[Shape, float], ...]

    def draw(self, random: Random) -> Shape:
        """The sizes of one request."""
        shape = random.choices([shape for shape, _ in self.parts], [share for _, share in self.parts])[0]
        return Shape(
            input_tokens=_jittered(shape.input_tokens, random),
            output_tokens=_jittered(shape.output_tokens, random),
            cached_tokens=shape.cached_tokens,
            image_tokens=shape.image_tokens,
            rows=_jittered(shape.rows, random),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What the replica takes. `max_context` 0: it generates nothing, and its requests are rows."""

    max_concurrency: int
    max_context: int = 0  # tokens of prompt and output
    max_rows: int = 0  # of one request
    image_tokens: int = 0  # of a typical image; 0: it takes none
    caches: bool = False  # it finds the head of a prompt in a cache

    @property
    def generates(self) -> bool:
        return self.max_context > 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The largest of each that calibration can afford, and what each costs by a first look, in seconds alone."""

    input_tokens: int = 0
    output_tokens: int = 0
    rows: int = 0
    input_token_s: float = 0.0
    output_token_s: float = 0.0
    row_s: float = 0.0
    request_s: float = 0.0

    def work_s(self, shape: Shape) -> float:
        computed = shape.input_tokens + shape.image_tokens
        tokens_s = self.input_token_s * computed + self.output_token_s * shape.output_tokens
        return self.request_s + tokens_s + self.row_s * shape.rows


def alone(shape: Shape, name: str) -> Mix:
    return Mix(name, ((shape, 1.0),))


def blend(name: str, shapes: Sequence[Shape], sizes: Sizes, weights: Sequence[float] | None = None) -> Mix:
    """Each shape brings its weight of the work; equal ones if none are given."""
    pairs = zip(shapes, weights or [1.0] * len(shapes), strict=True)
    shares = [weight / max(sizes.work_s(shape), 1e-9) for shape, weight in pairs]
    return Mix(name, tuple((shape, share / sum(shares)) for shape, share in zip(shapes, shares, strict=True)))


def first_mix(limits: Limits) -> Mix:
    """What is asked first, of a replica of which nothing is known."""
    if not limits.generates:
        return alone(Shape(rows=1), "one row")
    return alone(
        Shape(input_tokens=max(1, min(128, limits.max_context // 4)), output_tokens=min(32, limits.max_context // 4)),
        "first look",
    )


def reference_mix(limits: Limits, sizes: Sizes) -> Mix:
    """Neither long nor short: the mix at which the replica's concurrency is found."""
    if limits.generates:
        return alone(Shape(_between(_SHORT, sizes.input_tokens), _between(FEW, sizes.output_tokens)), "balanced")
    return alone(Shape(rows=_between(1, sizes.rows)), "some rows")


def designed_mixes(limits: Limits, sizes: Sizes) -> list[Mix]:
    """The grid beside the reference mix, in the order in which each adds most to a fit."""
    return _generating(limits, sizes) if limits.generates else _rows(sizes)


def random_mixes(limits: Limits, sizes: Sizes, count: int, random: Random) -> list[Mix]:
    """Mixes of one to three shapes, of any size that the grid spans: to hold out."""
    mixes: list[Mix] = []
    for number in range(count):
        shapes = [_random_shape(limits, sizes, random) for _ in range(random.choice((1, 2, 2, 3)))]
        weights = [random.uniform(0.2, 1) for _ in shapes]
        mixes.append(blend(f"random {number + 1}", shapes, sizes, weights))
    return mixes


def _generating(limits: Limits, sizes: Sizes) -> list[Mix]:
    most_in, most_out = sizes.input_tokens, sizes.output_tokens
    middle_in, middle_out = _between(_SHORT, most_in), _between(FEW, most_out)
    writes, reads = Shape(_SHORT, most_out), Shape(most_in, FEW)
    brief, long = Shape(_SHORT, FEW), Shape(most_in, most_out)
    mixes = [alone(writes, "writes"), alone(reads, "reads"), alone(brief, "brief"), alone(long, "long")]
    if limits.caches:
        again = Shape(max(_SHORT, most_in // 4), FEW, cached_tokens=3 * most_in // 4)
        mixes += [alone(again, "reads again"), blend("writes and reads again", [writes, again], sizes)]
    if limits.image_tokens:
        looks = Shape(_SHORT, middle_out, image_tokens=limits.image_tokens)
        mixes += [alone(looks, "looks"), blend("looks and writes", [looks, writes], sizes)]
    return [
        *mixes,
        blend("reads and writes", [reads, writes], sizes),
        alone(Shape(most_in // 2, FEW), "reads half"),
        alone(Shape(_SHORT, middle_out), "answers"),
        blend("brief and long", [brief, long], sizes),
        alone(Shape(middle_in, most_out), "tells"),
        alone(Shape(most_in, middle_out), "sums up"),
        blend("brief and reads", [brief, reads], sizes),
    ]


def _rows(sizes: Sizes) -> list[Mix]:
    most = sizes.rows
    if most <= 1:
        return []
    one, few, many, all_ = (Shape(rows=max(1, round(most**power))) for power in (0, 0.25, 0.75, 1))
    return [
        alone(one, "one row"),
        alone(all_, "most rows"),
        alone(many, "many rows"),
        blend("one and most rows", [one, all_], sizes),
        alone(few, "few rows"),
        blend("few and many rows", [few, many], sizes),
    ]


def _random_shape(limits: Limits, sizes: Sizes, random: Random) -> Shape:
    if not limits.generates:
        return Shape(rows=_spread(1, sizes.rows, random))
    input_tokens = _spread(_SHORT, sizes.input_tokens, random)
    output_tokens = _spread(FEW, sizes.output_tokens, random)
    if limits.caches and random.random() < 0.25:
        return Shape(input_tokens, output_tokens, cached_tokens=_spread(_SHORT, 3 * sizes.input_tokens // 4, random))
    if limits.image_tokens and random.random() < 0.25:
        return Shape(input_tokens, output_tokens, image_tokens=limits.image_tokens)
    return Shape(input_tokens, output_tokens)


def _between(low: int, high: int) -> int:
    return max(1, round(math.sqrt(low * high)))


def _spread(low: int, high: int, random: Random) -> int:
    return max(1, round(low * math.pow(max(high, low) / low, random.random())))


def _jittered(size: int, random: Random) -> int:
    return size if size <= 2 else max(1, round(size * random.uniform(1 - JITTER, 1 + JITTER)))
