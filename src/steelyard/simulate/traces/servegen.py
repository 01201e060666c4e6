"""ServeGen's clients: per client its request rate over the day, how bursty it is, and histograms of its token counts.

Format: `chunk-N-trace.csv` without a header (window start in s, rate, coefficient of variation, Gamma or Weibull or
nothing, shape, scale of the time between requests) and `chunk-N-dataset.json` ({window start: {field: "{value:
probability}"}}). A client becomes a tenant; its requests are drawn, by seed. Only windows with both can be drawn from.
Attribution, wherever the data are used: Xiang et al., ServeGen, arXiv 2505.09999 (Apache-2.0).
"""

from __future__ import annotations

import ast
import csv
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import gamma
from pathlib import Path
from random import Random

from steelyard.simulate.requests import SimRequest, Trace

ORIGIN = "ServeGen (Xiang et al., arXiv 2505.09999)"
BUSY_HOUR_S = 12 * 3600.0
# Prompt tokens are the sum of whichever of these a client has.
PROMPT_FIELDS = ("input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens")


class _Histogram:
    def __init__(self, literal: str) -> None:
        table: dict[float, float] = ast.literal_eval(literal)
        likely = {value: share for value, share in table.items() if share > 0}
        self.values = list(likely)
        self.sums = list(accumulate(likely.values()))

    def draw(self, rng: Random) -> int:
        place = bisect_right(self.sums, rng.random() * self.sums[-1])
        return int(self.values[min(place, len(self.values) - 1)])


def load(folder: Path, name: str, seed: int, *, start_s: float = BUSY_HOUR_S, duration_s: float = 1800.0) -> Trace:
    """Draw the requests of `duration_s` from `start_s` on. Raises ValueError that names what is wrong."""
    requests: list[SimRequest] = []
    paths = sorted(folder.glob("chunk-*-trace.csv"), key=lambda path: (len(path.name), path.name))
    for tenant, path in enumerate(paths):
        lengths = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
        if lengths.exists():
            rng = Random(f"{seed} {path.name}")
            client = _Client(path, lengths, tenant, rng)
            requests.extend(client.requests(start_s, start_s + duration_s))
    if not requests:
        raise ValueError(f"{folder.name} holds no client with a trace, a dataset and requests at {start_s:g} s.")
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, requests, block_tokens=512, duration_s=duration_s, origin=ORIGIN)


class _Client:
    """One tenant's windows of rates, and its histograms of lengths."""

    def __init__(self, rates: Path, lengths: Path, tenant: int, rng: Random) -> None:
        self._tenant = tenant
        self._rng = rng
        self._histograms: dict[float, Mapping[str, _Histogram]] = {}
        try:
            rows = [row for row in csv.reader(rates.read_text().splitlines()) if row]
            self._windows = [(float(row[0]), row[3], float(row[4]), float(row[5])) for row in rows]
            datasets: dict[str, dict[str, str]] = json.loads(lengths.read_text())
            self._datasets = {float(key): fields for key, fields in datasets.items()}
        except (ValueError, IndexError) as error:
            raise ValueError(f"{rates.name}: {error}") from error

    def requests(self, start_s: float, end_s: float) -> Iterator[SimRequest]:
        starts = [window[0] for window in self._windows]
        ends = [*starts[1:], starts[-1] + 600.0] if starts else []
        for (begins_s, kind, shape, scale), ends_s in zip(self._windows, ends, strict=True):
            fields = self._fields(begins_s)
            if not kind or not fields or not (shape > 0 and scale > 0):
                continue
            last_s = min(ends_s, end_s)
            # A renewal process; it begins at a random place within its first gap.
            mean_s = scale * (shape if kind == "Gamma" else gamma(1 + 1 / shape))
            now_s = max(begins_s, start_s) + self._rng.random() * mean_s
            while now_s < last_s:
                prompt = sum(fields[field].draw(self._rng) for field in PROMPT_FIELDS if field in fields)
                answer = fields["output_tokens"].draw(self._rng)
                yield SimRequest(now_s - start_s, prompt, answer, tenant=self._tenant)
                draw = (
                    self._rng.gammavariate(shape, scale) if kind == "Gamma" else self._rng.weibullvariate(scale, shape)
                )
                now_s += draw

    def _fields(self, begins_s: float) -> Mapping[str, _Histogram]:
        """The histograms of the part of the day that a window is in."""
        part = max((key for key in self._datasets if key <= begins_s), default=None)
        if part is None:
            return {}
        if part not in self._histograms:
            wanted = (*PROMPT_FIELDS, "output_tokens")
            self._histograms[part] = {
                field: _Histogram(text) for field, text in self._datasets[part].items() if field in wanted
            }
        return self._histograms[part]
