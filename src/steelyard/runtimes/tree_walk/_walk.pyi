from typing import Any, final

from numpy.typing import NDArray

Buffer = NDArray[Any]  # anything that lends its memory will do

@final
class Trees:
    def __new__(
        cls,
        *,
        features: int,
        scores: int,
        width: int,
        single: bool,
        link: int,
        parameter: float,
        divisor: float,
        tiny: float,
        leaves: Buffer,
        feature: Buffer,
        threshold: Buffer,
        decision: Buffer,
        left: Buffer,
        right: Buffer,
        score: Buffer,
        values: Buffer,
        boundaries: Buffer,
        words: Buffer,
    ) -> Trees: ...
    def walk(self, rows: Buffer, sums: Buffer, /) -> None: ...
