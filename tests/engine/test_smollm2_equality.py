"""SmolLM2-135M from its GGUF file: greedy output in float32 equals transformers token for token, alone and together.

Rounding differs between batch shapes (a BLAS sums in another order), so a tie could fall either way: the smallest lead
of the best token over the second is checked to be far above what rounding does to logits. `LLM_WORKLOAD=file.jsonl`
(lines with `prompt_token_ids`) runs the first 32 prompts of a workload instead of ours.
"""

import json
import os
from pathlib import Path

import pytest
import torch

from support.engines import load_model, make_engine, request, run_to_end

pytestmark = pytest.mark.slow

NEW_TOKENS = 24 if "LLM_WORKLOAD" in os.environ else 16
ROUNDING = 5e-4  # nats; the largest difference between batch shapes seen on this model is a tenth of it
TOPICS = [
    "Why is the sky blue?", "Write a haiku about rain.", "Name three rivers.", "2+2=", "Translate 'good morning'.",
    "Explain how a bicycle stays upright, and name two of the forces that act on it.",
    "Liste quatre fruits.", "What is an operating system?", "Tell me a story about a lighthouse keeper and a fox.",
    "Describe the taste of a lemon to someone who has never eaten one.", "はじめまして。", "🎉🎉🎉", "def fib(n):",
    "Summarise: The old engine describes the useful forest on the second day. The public storm measures the garden.",
    "Continue: once upon a time", "Who wrote Hamlet?",
]  # fmt: skip


def prompts(checkpoint) -> list[list[int]]:
    """Sixteen short ones of one turn each, and sixteen long ones."""
    if workload := os.environ.get("LLM_WORKLOAD"):
        return [json.loads(line)["prompt_token_ids"] for line in Path(workload).read_text().splitlines()[:32]]
    from steelyard.engine.tokenizer import TextEncoder

    encoder = TextEncoder(checkpoint.tokenizer)
    short = [f"<|im_start|>user\n{topic}<|im_end|>\n<|im_start|>assistant\n" for topic in TOPICS]
    long = [" ".join((TOPICS[index:] + TOPICS[:index]) * 2)[: 100 * (index + 1)] for index in range(len(TOPICS))]
    return [encoder.encode_prompt(text) for text in short + long]


@pytest.fixture(scope="module")
def expected(smollm2_path) -> list[tuple[list[int], list[int]]]:
    """Prompt ids and transformers' answer to each."""
    import transformers

    from steelyard.engine.formats import open_checkpoint

    reference = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    )
    answers, leads = [], []
    for prompt in prompts(open_checkpoint(smollm2_path)):
        result = reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=2,
            pad_token_id=2,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best_two = torch.cat(result.logits).topk(2).values
        leads.append(float((best_two[:, 0] - best_two[:, 1]).min()))
        answers.append((prompt, result.sequences[0].tolist()[len(prompt) :]))
    assert min(leads) > ROUNDING, "choose other prompts: this one is a tie"
    return answers


@pytest.fixture(scope="module")
def model(smollm2_path):
    return load_model(smollm2_path)


def test_one_at_a_time(model, expected):
    engine = make_engine(model, blocks=600, block_size=16)
    for prompt, answer in expected:
        engine.add(request(0, prompt, NEW_TOKENS))
        assert run_to_end(engine)[0] == answer


def test_batched_together(model, expected):
    engine = make_engine(model, blocks=1500, block_size=16)
    for identity, (prompt, _) in enumerate(expected):
        engine.add(request(identity, prompt, NEW_TOKENS))
    assert run_to_end(engine) == {identity: answer for identity, (_, answer) in enumerate(expected)}
