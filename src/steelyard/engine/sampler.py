"""Logits to tokens, row by row, so that a row's result never depends on its neighbours.

`core.Engine` calls `sample` once per step. Pure: the random number of a row is a function of its seed and position.
Every loop is bounded, every id is below the vocabulary's size, and a row that isn't finite fails alone.

The order is: penalties and bias, then temperature, then top-k, top-p, min-p, each on what the one before left.
Reported log probabilities are the model's own: natural logarithms before all of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch

from steelyard.engine.messages import SamplingParams, TopLogprobs

_GREEDY_BELOW = 1e-5  # temperatures under this one would only differ from zero by overflow
_FIRST_CANDIDATES = 64  # enough for nearly every top-p; grows eightfold until it is


@dataclass(frozen=True, slots=True)
class SampleRow:
    params: SamplingParams
    seed: int
    position: int  # of the token to choose, in its sequence
    output_token_ids: Seq[int]  # chosen so far; what penalties look at


@dataclass(frozen=True, slots=True)
class Sample:
    token_id: int
    logprobs: TopLogprobs | None


def sample(logits: torch.Tensor, rows: Seq[SampleRow]) -> list[Sample | None]:
    """One token for each row of `[rows, vocab]` float32 logits; None where they are not finite."""
    # The extremes of a row are finite only if all of it is, and cost less than a mask of everything.
    finite = (torch.isfinite(logits.amax(-1)) & torch.isfinite(logits.amin(-1))).tolist()
    best = logits.argmax(-1).tolist()
    samples: list[Sample | None] = []
    for index, row in enumerate(rows):
        if not finite[index]:
            samples.append(None)
            continue
        token_id = best[index] if _plainly_greedy(row.params) else _choose(logits[index], row)
        samples.append(Sample(token_id, _report(logits[index], token_id, row.params.logprobs)))
    return samples


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that belongs to one place of one sequence, whatever was drawn elsewhere."""
    key = seed & 0xFFFFFFFFFFFFFFFF
    return float(np.random.Generator(np.random.Philox(key=key, counter=position)).random())


def _plainly_greedy(params: SamplingParams) -> bool:
    return params.temperature < _GREEDY_BELOW and not (
        params.logit_bias or params.presence_penalty or params.frequency_penalty
    )


def _choose(logits: torch.Tensor, row: SampleRow) -> int:
    params = row.params
    adjusted = _adjust(logits, row)
    if params.temperature < _GREEDY_BELOW:
        return int(adjusted.argmax())
    # Subtracting the maximum first keeps any temperature from overflowing.
    scaled = (adjusted - adjusted.max()) / params.temperature
    probabilities, token_ids = _candidates(scaled, params)
    index = _inverse_cdf(probabilities, uniform(row.seed, row.position))
    return index if token_ids is None else int(token_ids[index])


def _adjust(logits: torch.Tensor, row: SampleRow) -> torch.Tensor:
    params = row.params
    if not (params.logit_bias or params.presence_penalty or params.frequency_penalty):
        return logits
    adjusted = logits.clone()
    if params.presence_penalty or params.frequency_penalty:
        counts = Counter(row.output_token_ids)
        for token_id, count in counts.items():
            adjusted[token_id] -= params.presence_penalty + params.frequency_penalty * count
    for token_id, bias in params.logit_bias.items():
        adjusted[token_id] += bias
    return adjusted


def _candidates(scaled: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights of the tokens that may be drawn (they need not sum to 1), and which tokens they are (None: all).

    The vocabulary is never sorted unless the mass is spread so thin that top-p needs all of it.
    """
    vocab_size = scaled.shape[0]
    weights = scaled.exp()
    limit = min(params.top_k, vocab_size) if params.top_k > 0 else vocab_size
    if params.top_p >= 1.0 and limit == vocab_size:
        return _at_least(weights, params.min_p), None
    count = limit if params.top_p >= 1.0 else min(limit, _FIRST_CANDIDATES)
    whole = float(weights.sum(dtype=torch.float64)) if limit == vocab_size else None
    while True:  # count grows to `limit` in a few rounds
        top, token_ids = weights.topk(count)
        if params.top_p >= 1.0:
            break
        if whole is None and count < limit:
            whole = float(weights.topk(limit).values.sum(dtype=torch.float64))
        mass = top.cumsum(0, dtype=torch.float64)
        total = whole if whole is not None else float(mass[-1])
        enough = int((mass < params.top_p * total).sum()) + 1  # the first that reaches the mass is kept
        if enough <= count or count == limit:
            top, token_ids = top[: max(enough, 1)], token_ids[: max(enough, 1)]
            break
        count = min(limit, count * 8)
    return _at_least(top, params.min_p), token_ids


def _at_least(weights: torch.Tensor, min_p: float) -> torch.Tensor:
    return torch.where(weights >= min_p * weights.max(), weights, 0.0) if min_p > 0 else weights


def _inverse_cdf(weights: torch.Tensor, number: float) -> int:
    """The index whose share of the total contains `number`. Never one of weight zero."""
    cumulative = weights.cumsum(0, dtype=torch.float64)
    total = float(cumulative[-1])
    target = min(number * total, float(np.nextafter(total, 0.0)))
    return int(torch.searchsorted(cumulative, target, right=True))


def _report(logits: torch.Tensor, token_id: int, count: int | None) -> TopLogprobs | None:
    if count is None:
        return None
    logprobs = torch.log_softmax(logits, dim=-1)
    top = logprobs.topk(min(count, logprobs.shape[0]))
    return TopLogprobs(float(logprobs[token_id]), top.indices.tolist(), top.values.tolist())
