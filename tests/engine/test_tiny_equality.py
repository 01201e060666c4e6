"""Every supported architecture, randomly initialised, gives transformers' greedy tokens: alone, together, in chunks."""

import random

import pytest
import torch

from support.engines import load_model, make_engine, request, run_to_end
from support.language_models import greedy_reference, save_language_model

LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CASES = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-no-groups": ("Llama", {"num_key_value_heads": 4}),
    "llama-wide-heads": ("Llama", {"head_dim": 32}),
    "llama-rope-llama3": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-rope-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
    ),
    "llama-shards": ("Llama", {"shards": True}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
}
NEW_TOKENS = 16


def prompts(count: int, longest: int = 90) -> list[list[int]]:
    rng = random.Random(3)
    return [[rng.randrange(3, 320) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """Our model, and what transformers says to the prompts."""
    import transformers

    architecture, changes = CASES[request.param]
    folder = save_language_model(tmp_path_factory.mktemp("models") / request.param, architecture, **changes)
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return load_model(folder), [greedy_reference(reference, prompt, NEW_TOKENS, eos=2) for prompt in prompts(8)]


def test_alone_equals_transformers(case):
    model, expected = case
    for prompt, answer in zip(prompts(8), expected, strict=True):
        engine = make_engine(model, block_size=16)
        engine.add(request(0, prompt, NEW_TOKENS))
        assert run_to_end(engine)[0] == answer


@pytest.mark.parametrize("token_budget", [7, 64, 1024])
def test_batched_in_chunks_equals_transformers(case, token_budget):
    model, expected = case
    engine = make_engine(model, blocks=300, block_size=4, token_budget=token_budget)
    for identity, prompt in enumerate(prompts(8)):
        engine.add(request(identity, prompt, NEW_TOKENS))
    assert run_to_end(engine) == dict(enumerate(expected))


def test_every_chunk_size_gives_the_same_tokens(tiny_model):
    prompt = prompts(1)[0] * 2
    outputs = set()
    for token_budget in range(1, 18):
        engine = make_engine(tiny_model, token_budget=token_budget)
        engine.add(request(0, prompt, NEW_TOKENS))
        outputs.add(tuple(run_to_end(engine)[0]))
    assert len(outputs) == 1


def test_preempted_sequences_give_what_they_give_alone(tiny_model):
    many = prompts(10, longest=30)
    alone = {}
    for identity, prompt in enumerate(many):
        engine = make_engine(tiny_model)
        engine.add(request(identity, prompt, 24))
        alone |= run_to_end(engine)
    crowded = make_engine(tiny_model, blocks=18, block_size=4)
    for identity, prompt in enumerate(many):
        assert crowded.add(request(identity, prompt, 24)) is None
    assert run_to_end(crowded) == alone
    assert crowded.stats().preemptions_total > 0


def test_sampled_output_depends_on_the_seed_and_not_on_company_or_preemption(tiny_model):
    from steelyard.engine.messages import SamplingParams

    sampling = SamplingParams(temperature=0.9, top_p=0.9, seed=11)
    prompt = prompts(1)[0][:20]
    engine = make_engine(tiny_model)
    engine.add(request(0, prompt, 24, sampling=sampling))
    alone = run_to_end(engine)[0]

    crowded = make_engine(tiny_model, blocks=16, block_size=4)
    for identity, other in enumerate(prompts(6, longest=20), start=1):
        crowded.add(request(identity, other, 20, sampling=SamplingParams(temperature=1.0, seed=identity)))
    crowded.add(request(0, prompt, 24, sampling=sampling))
    assert run_to_end(crowded)[0] == alone
    assert crowded.stats().preemptions_total > 0


def test_a_poisoned_row_fails_alone_and_leaves_no_numbers_behind(tiny_dir):
    model = load_model(tiny_dir)
    model._embedding = model._embedding.clone()
    model._embedding[77] = torch.nan
    engine = make_engine(model)
    healthy = prompts(1)[0][:10]
    healthy = [token if token != 77 else 78 for token in healthy]
    engine.add(request(1, healthy, 8))
    expected = run_to_end(engine)[1]
    engine.add(request(1, healthy, 8))
    engine.add(request(2, [5, 77, 9], 8))
    rejected, tokens = [], []
    while engine.has_work():
        done = engine.step(0.0)
        rejected += done.rejected
        tokens += [token.token_id for token in done.tokens if token.id == 1]
    assert [(item.id, item.code) for item in rejected] == [(2, "MODEL_ERROR")]
    assert tokens == expected
    assert engine.stats().nonfinite_total == 1
    for layer in engine._cache.layers:
        assert torch.isfinite(layer.gather(torch.arange(4 * 4))[0]).all()


def test_logprobs_are_of_the_raw_distribution_whatever_the_temperature(tiny_model):
    from steelyard.engine.messages import SamplingParams

    def first_report(temperature: float, token_budget: int):
        engine = make_engine(tiny_model, token_budget=token_budget)
        sampling = SamplingParams(temperature=temperature, logprobs=5, seed=1)
        engine.add(request(0, list(range(10, 40)), 1, sampling=sampling))
        while True:
            done = engine.step(0.0)
            if done.tokens:
                return done.tokens[0].logprobs

    reports = [first_report(t, budget) for t in (0.0, 0.5, 1.0) for budget in (16, 256)]
    for report in reports:
        assert report.token_ids == reports[0].token_ids
        assert report.logprobs == pytest.approx(reports[0].logprobs, abs=1e-4)
        assert sum(2.718281828**value for value in report.logprobs) <= 1 + 1e-6
