"""What a checkpoint must be to be opened, and how it is refused if it is not."""

import json
import shutil

import pytest

from steelyard.engine.formats import open_checkpoint
from steelyard.errors import ModelLoadError
from support.engines import load_model
from support.language_models import save_language_model


@pytest.fixture
def folder(tiny_dir, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(tiny_dir, tmp_path / "model")


def change_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_a_directory_is_described(tiny_dir):
    checkpoint = open_checkpoint(tiny_dir)
    assert checkpoint.config.num_layers == 2
    assert checkpoint.eos_token_ids == (2,)
    assert checkpoint.chat_template is not None
    assert checkpoint.special_tokens["eos_token"] == "<|im_end|>"


def test_a_gguf_file_is_described(smollm2_path):
    checkpoint = open_checkpoint(smollm2_path)
    config = checkpoint.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert config.tied_embeddings
    assert checkpoint.eos_token_ids == (2,)
    assert checkpoint.special_tokens["bos_token"] == "<|im_start|>"
    assert "model.layers" not in " ".join(checkpoint.tensors.names)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"architectures": None}, "none"),
        ({"rope_parameters": None, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "llama3"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "part of each head"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
        ({"hidden_size": 0}, "hidden_size"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(folder, values, named):
    change_config(folder, **values)
    with pytest.raises(ModelLoadError, match=named):
        open_checkpoint(folder)


def test_a_sliding_window_shortens_the_context_to_where_it_makes_no_difference(folder):
    change_config(folder, architectures=["MistralForCausalLM"], sliding_window=200)
    assert open_checkpoint(folder).config.context_length == 200


def test_missing_parts_are_named(folder):
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        spoilt = shutil.copytree(folder, folder.parent / f"without-{name}")
        (spoilt / name).unlink()
        with pytest.raises(ModelLoadError, match=name):
            open_checkpoint(spoilt)


def test_damaged_parts_are_refused(folder):
    for name in ("tokenizer.json", "model.safetensors", "config.json", "generation_config.json"):
        spoilt = shutil.copytree(folder, folder.parent / f"spoilt-{name}")
        (spoilt / name).write_bytes((spoilt / name).read_bytes()[:50])
        with pytest.raises(ModelLoadError, match=name):
            open_checkpoint(spoilt)


def test_weights_must_fit_the_config_exactly(folder):
    for values, named in (
        ({"num_hidden_layers": 1}, "does not use"),
        ({"num_hidden_layers": 3}, "layers.2"),
        ({"intermediate_size": 100}, "shape"),
        ({"attention_bias": True}, "bias"),
    ):
        spoilt = shutil.copytree(folder, folder.parent / named)
        change_config(spoilt, **values)
        with pytest.raises(ModelLoadError, match=named):
            load_model(spoilt)


def test_a_shard_outside_the_directory_is_refused(tmp_path):
    folder = save_language_model(tmp_path / "sharded", shards=True)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(ModelLoadError, match="outside"):
        open_checkpoint(folder)


def test_a_path_that_is_no_model_is_refused(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ModelLoadError):
            open_checkpoint(path)
    (tmp_path / "model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelLoadError, match=r"model\.bin"):
        open_checkpoint(tmp_path / "model.bin")
