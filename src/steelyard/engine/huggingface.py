"""A Hugging Face directory as a checkpoint: config.json, safetensors (one file or shards), tokenizer.json, template.

`checkpoint.open_checkpoint` calls it. It never runs code from the directory and never reads pickles.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from steelyard.engine.checkpoint import Checkpoint, FloatArray
from steelyard.engine.config import ModelConfig, RopeConfig
from steelyard.errors import ModelLoadError

_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_FLOATS = ("F32", "F16", "BF16")
_DEFAULT_THETA = 10_000.0

Json = dict[str, Any]


def open_directory(path: Path) -> Checkpoint:
    """Raises ModelLoadError naming the architecture, rotary scaling or quantisation that is not supported."""
    raw = _read_json(path / "config.json")
    tokenizer_config = _read_json(path / "tokenizer_config.json", optional=True)
    tokenizer = _tokenizer(path / "tokenizer.json")
    special_tokens = {
        name: text
        for name in ("bos_token", "eos_token", "unk_token", "pad_token")
        if (text := _token_text(tokenizer_config.get(name))) is not None
    }
    return Checkpoint(
        path=path,
        config=_config(raw),
        tensors=SafetensorsDirectory(path),
        tokenizer=tokenizer,
        chat_template=_chat_template(path, tokenizer_config),
        eos_token_ids=_eos_token_ids(path, raw, tokenizer, special_tokens.get("eos_token")),
        special_tokens=special_tokens,
    )


class SafetensorsDirectory:
    """Tensors of all shards by canonical name."""

    def __init__(self, path: Path) -> None:
        files = _shards(path)
        self._sources: dict[str, tuple[Path, str]] = {}
        for file in files:
            try:
                with safe_open(file, framework="np") as shard:
                    for name in shard.keys():  # noqa: SIM118 - not a mapping: it has only keys()
                        self._sources[name.removeprefix("model.")] = (file, name)
            except (SafetensorError, OSError) as error:
                raise ModelLoadError(f"{file.name} cannot be read: {error}.") from error

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._sources)

    def read(self, name: str) -> FloatArray:
        file, stored = self._sources[name]
        try:
            # Through torch, since numpy has no bfloat16; the result shares the converted tensor's memory.
            with safe_open(file, framework="pt") as shard:
                dtype = shard.get_slice(stored).get_dtype()
                if dtype not in _FLOATS:
                    raise ModelLoadError(f"{file.name} stores {stored} as {dtype}, which is not supported.")
                array: FloatArray = shard.get_tensor(stored).float().numpy()
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"{file.name} cannot be read: {error}.") from error
        return array.astype(np.float32, copy=False)


def _shards(path: Path) -> list[Path]:
    if (path / _SINGLE).exists():
        return [path / _SINGLE]
    if not (path / _INDEX).exists():
        raise ModelLoadError(f"{path} has no safetensors weights ({_SINGLE} or {_INDEX}).")
    names = _read_json(path / _INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelLoadError(f"{_INDEX} has no weight_map.")
    files = []
    for name in sorted({str(value) for value in names.values()}):
        if Path(name).name != name:
            raise ModelLoadError(f"{_INDEX} names a file outside its directory: {name!r}.")
        if not (path / name).exists():
            raise ModelLoadError(f"{path} lacks the shard {name}.")
        files.append(path / name)
    return files


def _read_json(file: Path, optional: bool = False) -> Json:
    if optional and not file.exists():
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelLoadError(f"{file.name} cannot be read: {error}.") from error


def _config(raw: Json) -> ModelConfig:
    architecture = next(iter(raw.get("architectures") or ["(none)"]))
    if architecture not in _ARCHITECTURES:
        raise ModelLoadError(
            f"The architecture {architecture!r} is not supported; supported are {', '.join(_ARCHITECTURES)}."
        )
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown")
        raise ModelLoadError(f"The weights are quantised with {method!r}, which is not supported for safetensors.")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelLoadError(f"The activation {raw['hidden_act']!r} is not supported; only 'silu' is.")
    qwen2, qwen3 = architecture.startswith("Qwen2"), architecture.startswith("Qwen3")
    biased = bool(raw.get("attention_bias", False))
    hidden_size, num_heads = _integer(raw, "hidden_size"), _integer(raw, "num_attention_heads")
    context_length = _integer(raw, "max_position_embeddings")
    return ModelConfig(
        architecture=architecture,
        num_layers=_integer(raw, "num_hidden_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=_integer(raw, "num_key_value_heads", num_heads),
        head_dim=_integer(raw, "head_dim", 128 if qwen3 else hidden_size // num_heads),
        intermediate_size=_integer(raw, "intermediate_size"),
        vocab_size=_integer(raw, "vocab_size"),
        rms_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope(raw, context_length),
        context_length=min(context_length, _window(raw, architecture) or context_length),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=biased or qwen2,
        output_bias=biased and not qwen2,
        mlp_bias=bool(raw.get("mlp_bias", False)),
        qk_norm=qwen3,
    )


def _integer(raw: Json, key: str, default: int | None = None) -> int:
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ModelLoadError(f"config.json has no usable value for {key!r}.")
    return value


def _window(raw: Json, architecture: str) -> int | None:
    """Sliding attention sees all of a sequence no longer than its window, so that far the models agree."""
    window = raw.get("sliding_window")
    if not isinstance(window, int) or architecture.startswith("Llama"):
        return None
    if architecture.startswith("Qwen") and not raw.get("use_sliding_window", False):
        return None
    return window


def _rope(raw: Json, context_length: int) -> RopeConfig:
    # transformers 5 writes rope_parameters, earlier ones rope_theta and rope_scaling.
    scaling: Json = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or _DEFAULT_THETA)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if scaling.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelLoadError("The model rotates only a part of each head, which is not supported.")
    if kind == "default":
        return RopeConfig(theta)
    try:
        if kind == "linear":
            return RopeConfig(theta, "linear", factor=float(scaling["factor"]))
        if kind == "llama3":
            original = scaling.get("original_max_position_embeddings", context_length)
            return RopeConfig(
                theta,
                "llama3",
                factor=float(scaling["factor"]),
                low_freq_factor=float(scaling["low_freq_factor"]),
                high_freq_factor=float(scaling["high_freq_factor"]),
                original_context=int(original),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelLoadError(f"config.json describes {kind!r} rotary scaling incompletely: {error}.") from error
    raise ModelLoadError(f"Rotary scaling of type {kind!r} is not supported; supported are default, linear, llama3.")


def _tokenizer(file: Path) -> Tokenizer:
    if not file.exists():
        raise ModelLoadError(f"{file.parent} has no tokenizer.json.")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"tokenizer.json cannot be read: {error}.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _token_text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _chat_template(path: Path, tokenizer_config: Json) -> str | None:
    file = path / "chat_template.jinja"
    if file.exists():
        return file.read_text("utf-8")
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _eos_token_ids(path: Path, raw: Json, tokenizer: Tokenizer, eos_token: str | None) -> tuple[int, ...]:
    """Any of these ends a generation: the generation config's where it exists, else the config's and tokenizer's."""
    generation = _read_json(path / "generation_config.json", optional=True)
    ids: list[int] = []
    for source in (generation, raw):
        value = source.get("eos_token_id")
        ids += value if isinstance(value, list) else [value] if isinstance(value, int) else []
        if ids:
            break
    if eos_token is not None and (known := tokenizer.token_to_id(eos_token)) is not None:
        ids.append(known)
    return tuple(dict.fromkeys(index for index in ids if isinstance(index, int) and math.isfinite(index)))
