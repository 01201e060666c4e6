"""Vidur's lengths of summarisation requests (arXiv papers): token counts without times, given Poisson arrivals here.

Format: CSV with the columns `num_prefill_tokens` and `num_decode_tokens` among others.
Attribution, wherever the data are used: Agrawal et al., Vidur, MLSys 2024 (MIT).
"""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

from steelyard.simulate.requests import SimRequest, Trace

ORIGIN = "Vidur (Agrawal et al., MLSys 2024)"
RATE = 10.0  # of the arrivals; scaling stretches them to the load that is wanted


def load(path: Path, name: str, seed: int) -> Trace:
    """Raises ValueError that names what is wrong."""
    rng = Random(seed)
    now_s = 0.0
    requests: list[SimRequest] = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            now_s += rng.expovariate(RATE)
            try:
                # Float first: the same publisher writes both 12 and 12.0.
                prompt, answer = int(float(row["num_prefill_tokens"])), int(float(row["num_decode_tokens"]))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path.name}, line {number}: {error!r}") from error
            requests.append(SimRequest(now_s, prompt, answer))
    if not requests:
        raise ValueError(f"{path.name} holds no request.")
    return Trace(name, requests, block_tokens=512, duration_s=now_s, origin=ORIGIN)
