"""GGUF files of every supported architecture, written here from saved models, generate what those generate."""

import json
from pathlib import Path

import numpy as np
import pytest

from steelyard.engine.formats import open_checkpoint
from steelyard.errors import ModelLoadError
from support.engines import load_model, make_engine, request, run_to_end
from support.language_models import SPECIALS, save_language_model

gguf = pytest.importorskip("gguf")
PROMPT = [5, 60, 7, 200, 9, 300, 11, 12, 60, 61]
NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def interleave(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of each head from halves to the pairs that llama files have."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


def write_gguf(path: Path, folder: Path, architecture: str, **changes) -> Path:
    """`folder`'s model as a GGUF file; `changes` replace metadata (None: leave the key out)."""
    checkpoint = open_checkpoint(folder)
    config = checkpoint.config
    tokenizer = json.loads(checkpoint.tokenizer.to_str())
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    metadata = {
        f"{architecture}.block_count": config.num_layers,
        f"{architecture}.context_length": config.context_length,
        f"{architecture}.embedding_length": config.hidden_size,
        f"{architecture}.feed_forward_length": config.intermediate_size,
        f"{architecture}.attention.head_count": config.num_heads,
        f"{architecture}.attention.head_count_kv": config.num_kv_heads,
        f"{architecture}.attention.key_length": config.head_dim,
        f"{architecture}.attention.layer_norm_rms_epsilon": config.rms_eps,
        f"{architecture}.rope.freq_base": config.rope.theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": [3 if token in SPECIALS else 1 for token in vocabulary],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
    } | changes
    writer = gguf.GGUFWriter(path, changes.pop("general.architecture", architecture))
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    for name in sorted(checkpoint.tensors.names):
        stem, _, kind = name.rpartition(".")
        layer, prefix = stem.removeprefix("layers."), ""
        if layer != stem:
            index, _, stem = layer.partition(".")
            prefix = f"blk.{index}."
        array = checkpoint.tensors.read(name)
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            array = interleave(array, config.head_dim)
        writer.add_tensor(f"{prefix}{NAMES[stem]}.{kind}", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def generate(path: Path) -> list[int]:
    engine = make_engine(load_model(path))
    engine.add(request(0, PROMPT, 24))
    return run_to_end(engine)[0]


@pytest.mark.parametrize(
    ("architecture", "family", "changes"),
    [
        ("llama", "Llama", {}),
        ("llama", "Llama", {"tie_word_embeddings": True}),
        ("qwen2", "Qwen2", {}),
        ("qwen3", "Qwen3", {"head_dim": 32}),
    ],
)
def test_the_same_model_from_both_formats_gives_the_same_tokens(tmp_path, architecture, family, changes):
    folder = save_language_model(tmp_path / "model", family, **changes)
    assert generate(write_gguf(tmp_path / "model.gguf", folder, architecture)) == generate(folder)


def test_forgetting_the_row_order_would_show(tmp_path, tiny_dir):
    wrong = write_gguf(tmp_path / "wrong.gguf", tiny_dir, "qwen2")
    content = wrong.read_bytes().replace(b"qwen2", b"llama")
    wrong.write_bytes(content)
    assert generate(wrong) != generate(tiny_dir)


def test_the_tokenizer_is_the_same_from_both_formats(tmp_path, tiny_dir):
    from_file = open_checkpoint(write_gguf(tmp_path / "model.gguf", tiny_dir, "llama")).tokenizer
    from_directory = open_checkpoint(tiny_dir).tokenizer
    for text in ("the quick brown fox", "<|im_start|>user\n🎉<|im_end|>", "  a\n\nb 12"):
        assert from_file.encode(text).ids == from_directory.encode(text).ids
        assert from_file.decode(from_file.encode(text).ids) == from_directory.decode(from_directory.encode(text).ids)


def test_a_begin_token_is_added_where_the_file_wants_it(tmp_path, tiny_dir):
    path = write_gguf(tmp_path / "bos.gguf", tiny_dir, "llama", **{"tokenizer.ggml.add_bos_token": True})
    tokenizer = open_checkpoint(path).tokenizer
    assert tokenizer.encode("fox").ids[0] == 1
    assert tokenizer.encode("fox", add_special_tokens=False).ids[0] != 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": "gemma"}, "gemma"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.rope.scaling.type": "yarn"}, "yarn"),
        ({"llama.rope.dimension_count": 8}, "part of each head"),
        ({"llama.block_count": None}, "llama.block_count"),
        ({"llama.embedding_length": "many"}, "llama.embedding_length"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer 'llama'"),
        ({"tokenizer.ggml.pre": "mystery"}, "mystery"),
        ({"tokenizer.ggml.merges": ["ab"]}, "merge"),
        ({"tokenizer.ggml.merges": ["qq ww"]}, "inconsistent"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, tiny_dir, changes, named):
    path = write_gguf(tmp_path / "refused.gguf", tiny_dir, "llama", **changes)
    with pytest.raises(ModelLoadError, match=named):
        open_checkpoint(path)
