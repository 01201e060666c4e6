"""How long one step of an LLM engine takes, and what a request costs such a replica.

A step runs one token of every decoding request and a chunk of prompts, and takes `step_s` + `running_s` × requests +
`prefill_s` × prompt tokens + `pair_s` × pairs (a prompt token and one before it) + `context_s` × tokens of context that
decoding reads. Simulated replicas step by it, the simulated router prices by it. It simulates nothing itself.

The defaults are Llama 3.1 8B in bf16 on one A100 80 GB, from what is published of both:
- the model card and configuration (8.03e9 parameters; 32 layers, hidden size 4096, 8 key/value heads of 128): 16.06 GB
  of weights, 131,072 bytes of keys and values a token, 16.06e9 floating-point operations a token and 4 × 32 × 4096 more
  for each pair that attention looks at;
- NVIDIA's data sheet of the A100 80 GB SXM (312 TFLOPS dense bf16, 2.039 TB/s), of which engines reach about half of
  the first in prefill and four fifths of the second in decode;
- KV capacity (29,205 blocks of 16 tokens), and 18 µs more per decoding request, as fitted to vLLM 0.8.4 for this model
  and GPU by the inference-sim project (`defaults.yaml`, Apache-2.0), whose 16 ms and 48 µs for the step and a prompt
  token describe the same product differently: ours keep within what the hardware can do;
- a budget of 512 tokens a step, which Sarathi-Serve (Agrawal et al., OSDI 2024) uses where latency is bound tightly.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from steelyard.policy.units import LinearCost, Term


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """An engine on its hardware. `typical_decodes`: the batch that decodes at the load a replica is meant to bear."""

    step_s: float = 9.85e-3
    running_s: float = 18e-6
    prefill_s: float = 103e-6
    pair_s: float = 3.36e-9
    context_s: float = 80e-9
    token_budget: int = 512
    max_running: int = 256
    max_waiting: int = 256
    kv_tokens: int = 467_280
    typical_decodes: int = 32

    def __post_init__(self) -> None:
        for name in ("step_s", "running_s", "prefill_s", "pair_s", "context_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; no part of a step takes less than no time.")
        for name in ("token_budget", "max_running", "kv_tokens", "typical_decodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.token_budget <= self.max_running:
            raise ValueError(
                f"token_budget ({self.token_budget}) must exceed max_running ({self.max_running}): "
                "decoding alone would use up every step."
            )
        if not self.step_s > 0:
            raise ValueError("step_s must be more than 0: time would stand still.")

    def step_duration_s(self, *, running: int, prefill_tokens: int, pairs: float, context_tokens: int) -> float:
        """One step at full speed; `running` counts decoding requests and those whose prompt is in the step."""
        return (
            self.step_s
            + self.running_s * running
            + self.prefill_s * prefill_tokens
            + self.pair_s * pairs
            + self.context_s * context_tokens
        )

    def alone_s(self, prompt_tokens: int) -> float:
        """Time to the first token of a request that has the replica to itself and nothing cached."""
        steps = -(-prompt_tokens // self.token_budget)
        return (
            steps * (self.step_s + self.running_s)
            + self.prefill_s * prompt_tokens
            + self.pair_s * prompt_tokens * prompt_tokens / 2
        )

    def cost(self) -> LinearCost:
        """What a request costs, were it calibrated: the share of a step's time, at the typical batch.

        Weights are read once a step, for all: `typical_decodes` share that. Prompts fill every other step or so.
        """
        return LinearCost({
            Term.INPUT: 1000 * (self.prefill_s + self.step_s / self.token_budget / 2),
            Term.OUTPUT: 1000 * (self.running_s + self.step_s / self.typical_decodes),
            Term.ATTENTION: 1000 * self.pair_s,
            Term.CONTEXT: 1000 * self.context_s,
        })  # fmt: skip

    @classmethod
    def from_json(cls, path: Path) -> Self:
        """Read an object whose keys are fields of this class; what is absent keeps its default.

        Raises ValueError that names what is wrong.
        """
        read: Any = json.loads(path.read_text())
        kinds: dict[str, type[int] | type[float]] = {
            field.name: int if isinstance(field.default, int) else float for field in fields(cls)
        }
        if not isinstance(read, dict) or (unknown := sorted(set(read) - set(kinds))):
            named = ", ".join(unknown) if isinstance(read, dict) else type(read).__name__
            raise ValueError(f"{path.name}: {named} is no parameter of a replica; known are {', '.join(kinds)}.")
        for name, value in read.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or (kinds[name] is int and value % 1):
                raise ValueError(f"{path.name}: {name} must be {'a whole' if kinds[name] is int else 'a'} number.")
        values: dict[str, Any] = {name: kinds[name](value) for name, value in read.items()}
        return cls(**values)

    def as_json(self) -> dict[str, float | int]:
        """All fields, for a report."""
        return asdict(self)
