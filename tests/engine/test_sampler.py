"""The law of the sampler, its edges, and that rows don't touch each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.engine.messages import SamplingParams
from steelyard.engine.sampler import SampleRow, sample, uniform

VOCAB = 50


def row(position: int = 0, seed: int = 1, output: list[int] | None = None, **params) -> SampleRow:
    return SampleRow(SamplingParams(**params), seed, position, output or [])


def draw(logits: torch.Tensor, count: int = 1, **params) -> list[int]:
    rows = [row(position, **params) for position in range(count)]
    return [result.token_id for result in sample(logits.expand(count, -1), rows)]


def random_logits(seed: int = 0, vocab: int = VOCAB, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(vocab, generator=torch.Generator().manual_seed(seed))


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-30, 0.01, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1e-9, 0.1, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 5, VOCAB, 2**30]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    presence_penalty=st.sampled_from([0.0, -2.0, 1.5]),
    frequency_penalty=st.sampled_from([0.0, 2.0]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, 100.0, 1.0]), max_size=4),
    seed=st.none(),
)
ROWS = st.builds(
    SampleRow,
    PARAMS,
    st.integers(0, 2**63 - 1),
    st.integers(0, 10_000),
    st.lists(st.integers(0, VOCAB - 1), max_size=5),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=6), st.integers(0, 1000), st.data())
def test_a_row_gives_the_same_alone_and_in_company_also_beside_broken_rows(rows, seed, data):
    logits = torch.stack([random_logits(seed + index, scale=5.0) for index in range(len(rows))])
    broken = data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=2))
    for index in broken:
        logits[index, index] = data.draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    together = sample(logits, rows)
    for index, one in enumerate(rows):
        if index in broken:
            assert together[index] is None
        else:
            assert together[index].token_id == sample(logits[index : index + 1], [one])[0].token_id
            assert 0 <= together[index].token_id < VOCAB


def test_temperature_zero_is_the_most_likely_token_beside_random_rows():
    logits = torch.stack([random_logits(1), random_logits(2)])
    rows = [row(temperature=0.0, logit_bias={3: -100.0}), row(temperature=1.0)]
    expected = logits[0].clone()
    expected[3] -= 100
    assert sample(logits, rows)[0].token_id == int(expected.argmax())


def test_a_one_hot_row_returns_its_token_whatever_the_settings():
    logits = torch.zeros(VOCAB)
    for params in ({"top_p": 0.9, "top_k": 50}, {"top_p": 1.0, "top_k": 2**30}, {"min_p": 0.1}, {}):
        assert set(draw(logits, 20, temperature=1.0, logit_bias={7: 100.0}, **params)) == {7}


def test_top_k_one_and_tiny_top_p_are_greedy():
    logits = random_logits()
    best = int(logits.argmax())
    assert set(draw(logits, 30, top_k=1)) == {best}
    assert set(draw(logits, 30, top_p=1e-12)) == {best}
    assert set(draw(logits, 30, min_p=1.0)) == {best}


def test_top_k_zero_is_no_limit_and_all_equal_rows_reach_every_token():
    assert len(set(draw(torch.zeros(VOCAB), 1000, top_k=0))) == VOCAB


def reference_law(logits: torch.Tensor, params: SamplingParams) -> np.ndarray:
    """The same law by full sorting, in float64: temperature, top-k, top-p, min-p, each on what the one before left."""
    p = torch.softmax(logits.double() / params.temperature, 0).numpy()
    order = np.argsort(-p, kind="stable")
    if params.top_k:
        p[order[params.top_k :]] = 0
        p /= p.sum()
    if params.top_p < 1:
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= params.top_p]] = 0
        p /= p.sum()
    if params.min_p:
        p[p < params.min_p * p.max()] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 1.7, "top_k": 7},
        {"top_p": 0.8},
        {"top_p": 0.95, "top_k": 20, "temperature": 1.3},
        {"min_p": 0.1},
        {"top_p": 0.99, "temperature": 5.0},
    ],
)
@pytest.mark.parametrize("vocab", [50, 700])
def test_frequencies_follow_the_law(params, vocab):
    logits = random_logits(5, vocab)
    law = reference_law(logits, SamplingParams(**params))
    count = 4000
    observed = np.bincount(draw(logits, count, **params), minlength=vocab)
    assert not observed[law == 0].any()
    expected = law * count
    common = expected >= 5
    statistic = ((observed - expected)[common] ** 2 / expected[common]).sum()
    freedom = max(int(common.sum()) - 1, 1)
    assert statistic < freedom + 5 * math.sqrt(2 * freedom) + 5


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 500), st.floats(0.01, 0.999), st.floats(0.1, 20.0), st.sampled_from([0, 3, 100, 600]))
def test_only_tokens_of_the_nucleus_are_drawn_however_flat_the_distribution(seed, top_p, temperature, top_k):
    logits = random_logits(seed, 900)
    params = SamplingParams(top_p=top_p, temperature=temperature, top_k=top_k)
    law = reference_law(logits, params)
    slack = reference_law(logits, SamplingParams(top_p=min(top_p + 1e-5, 0.9999), temperature=temperature, top_k=top_k))
    for token in draw(logits, 10, top_p=top_p, temperature=temperature, top_k=top_k):
        assert law[token] > 0 or slack[token] > 0


def test_penalties_look_at_the_output_and_bias_adds():
    logits = torch.zeros(VOCAB)
    logits[4], logits[5] = 3.0, 2.0
    assert sample(logits[None], [row(temperature=0.0, output=[4], presence_penalty=1.5)])[0].token_id == 5
    assert sample(logits[None], [row(temperature=0.0, output=[4, 4], frequency_penalty=0.6)])[0].token_id == 5
    assert sample(logits[None], [row(temperature=0.0, output=[4], frequency_penalty=0.6)])[0].token_id == 4
    assert sample(logits[None], [row(temperature=0.0, logit_bias={9: 4.0})])[0].token_id == 9


def test_logprobs_are_those_of_the_model_before_any_setting():
    logits = random_logits(9)
    expected = torch.log_softmax(logits, 0)
    for params in (
        {"temperature": 0.3},
        {"temperature": 2.0, "top_k": 2},
        {"temperature": 0.0, "logit_bias": {1: 9.0}},
    ):
        report = sample(logits[None], [row(logprobs=4, **params)])[0]
        assert report.logprobs.chosen == pytest.approx(float(expected[report.token_id]))
        assert report.logprobs.logprobs == pytest.approx(expected.topk(4).values.tolist())
        assert sum(map(math.exp, report.logprobs.logprobs)) <= 1 + 1e-6
    assert sample(logits[None], [row(logprobs=0)])[0].logprobs.token_ids == []
    assert sample(logits[None], [row()])[0].logprobs is None
    assert len(sample(logits[None], [row(logprobs=10_000)])[0].logprobs.token_ids) == VOCAB


def test_random_numbers_belong_to_seed_and_position():
    assert uniform(3, 5) == uniform(3, 5)
    numbers = [uniform(seed, position) for seed in (0, 1, 2**63 - 1, -1) for position in range(500)]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) >= 0
    assert max(numbers) < 1
    assert np.mean(numbers) == pytest.approx(0.5, abs=0.03)


def test_a_tail_of_zero_weight_is_never_drawn():
    logits = torch.full((VOCAB,), -1e4)
    logits[:3] = 0.0
    assert set(draw(logits, 500)) == {0, 1, 2}
