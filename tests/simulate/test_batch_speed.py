"""A replica's parameters come from defaults or a JSON file, and impossible ones are named."""

import json
from pathlib import Path

import pytest

from steelyard.policy.units import Features
from steelyard.simulate import routing
from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.requests import SimRequest, Trace
from steelyard.simulate.scaling import Scaled


def test_json_overrides_defaults(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"step_s": 0.02, "kv_tokens": 1000}')
    model = BatchSpeed.from_json(path)
    assert (model.step_s, model.kv_tokens, model.max_running) == (0.02, 1000, BatchSpeed().max_running)
    path.write_text(json.dumps(model.as_json()))
    assert BatchSpeed.from_json(path) == model


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"steps": 1}', "steps"),
        ("[1]", "list"),
        ('{"kv_tokens": 1.5}', "whole"),
        ('{"step_s": "fast"}', "number"),
        ('{"step_s": 0}', "stand still"),
        ('{"prefill_s": -1}', "prefill_s"),
        ('{"max_running": 512}', "token_budget"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ValueError, match=said):
        BatchSpeed.from_json(tmp_path / "model.json")


@pytest.mark.parametrize(("prompt", "answer"), [(250, 100), (1_150, 210), (4_000, 30), (12_000, 340)])
def test_a_busy_replica_works_off_about_a_thousand_units_a_second(prompt: int, answer: int) -> None:
    """The price follows from the speed by a typical batch, not by a fit: within a third at the load it stands for."""
    model = BatchSpeed(max_running=32, max_waiting=10_000)  # the typical batch, always full
    requests = [SimRequest(0.0, prompt, answer) for _ in range(200)]
    load = Scaled(Trace("same", requests, 256, 1.0), requests, 1, 1.0, 1.0, 0.0, 1.0)
    took_s = routing.run(load, "round-robin", model, 1, 1).ended_s
    mmu = 200 * model.cost().mmu(Features(input_tokens=prompt, output_tokens=answer))
    assert mmu / 1e6 / took_s == pytest.approx(1.0, abs=1 / 3)
