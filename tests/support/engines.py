"""Engines inside the test process, driven step by step."""

from pathlib import Path
from typing import Any

from steelyard.engine.core import Engine
from steelyard.engine.formats import open_checkpoint
from steelyard.engine.messages import AddRequest, Limits, SamplingParams, StepDone
from steelyard.engine.model import LlamaModel
from steelyard.engine.weights import WeightLoader

GREEDY = SamplingParams(temperature=0.0)


def load_model(path: Path, max_model_len: int | None = None) -> LlamaModel:
    checkpoint = open_checkpoint(path)
    length = max_model_len or checkpoint.config.context_length
    return LlamaModel(checkpoint.config, WeightLoader(checkpoint.tensors), length)


def make_engine(
    model: LlamaModel,
    *,
    blocks: int = 64,
    block_size: int = 4,
    max_sequences: int = 32,
    token_budget: int = 256,
    max_model_len: int | None = None,
) -> Engine:
    fits = min(model.config.context_length, blocks * block_size)
    limits = Limits(max_model_len or fits, block_size, blocks + 1, max_sequences, model.config.vocab_size)
    return Engine(model, limits, token_budget, draw_seed=lambda: 0)


def request(identity: int, prompt: list[int], max_tokens: int, **values: Any) -> AddRequest:
    values = {"sampling": GREEDY, "stop_token_ids": [2]} | values
    return AddRequest(identity, prompt, max_tokens=max_tokens, **values)


def collect(done: StepDone, into: dict[int, list[int]]) -> None:
    for token in done.tokens:
        into.setdefault(token.id, []).append(token.token_id)


def run_to_end(engine: Engine, max_steps: int = 10_000) -> dict[int, list[int]]:
    """Output ids by request; checks the invariants after every step and that nothing is left at the end."""
    outputs: dict[int, list[int]] = {}
    for _ in range(max_steps):
        if not engine.has_work():
            engine.scheduler.check_integrity()
            assert engine.stats().blocks_used == 0
            return outputs
        done = engine.step(0.0)
        assert not done.rejected
        collect(done, outputs)
        engine.scheduler.check_integrity()
    raise AssertionError(f"not finished after {max_steps} steps")
