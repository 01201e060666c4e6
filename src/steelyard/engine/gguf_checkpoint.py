"""A GGUF file as a checkpoint: its keys as a config, its tensors by canonical name, its vocabulary as a tokenizer.

`checkpoint.open_checkpoint` calls it. Two things differ from Hugging Face files: `llama` files keep query and key
rows permuted for interleaved rotary pairs (undone here), and scaled rotary frequencies come as a tensor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from steelyard.engine.checkpoint import Checkpoint, FloatArray
from steelyard.engine.config import ModelConfig, RopeConfig
from steelyard.engine.gguf import GgufFile
from steelyard.errors import ModelLoadError

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_PERMUTED = ("llama",)
_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type

_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def open_file(path: Path) -> Checkpoint:
    """Raises ModelLoadError naming the architecture, tokenizer, rotary scaling or encoding that is not supported."""
    file = GgufFile(path)
    keys = _Keys(path.name, file.metadata)
    config = _config(keys, file)
    tokens = keys.strings("tokenizer.ggml.tokens")
    special = {
        f"{name}_token": tokens[index]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (index := keys.optional_token(f"tokenizer.ggml.{key}_token_id", len(tokens))) is not None
    }
    ends = (keys.optional_token(f"tokenizer.ggml.{key}_token_id", len(tokens)) for key in ("eos", "eot", "eom"))
    template = file.metadata.get("tokenizer.chat_template")
    return Checkpoint(
        path=path,
        config=config,
        tensors=GgufTensors(file, config),
        tokenizer=_tokenizer(keys, tokens),
        chat_template=template if isinstance(template, str) else None,
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        special_tokens=special,
    )


class GgufTensors:
    """The file's tensors under canonical names, half-split rotary layout."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._file = file
        self._config = config
        self._sources = {_canonical(name): name for name in file.tensors}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._sources)

    def read(self, name: str) -> FloatArray:
        tensor = self._file.read(self._sources[name])
        if self._config.architecture in _PERMUTED and name.rpartition(".")[0].endswith(("q_proj", "k_proj")):
            return _unpermute(tensor, self._config.head_dim)
        return tensor


def _canonical(name: str) -> str:
    stem, _, kind = name.rpartition(".")  # "blk.0.attn_q", "weight"
    if name == "rope_freqs.weight":
        return "rope_freqs"
    block = _BLOCK.fullmatch(stem)
    if block:
        return f"layers.{block[1]}.{_NAMES.get(block[2], block[2])}.{kind}"
    return f"{_NAMES.get(stem, stem)}.{kind}"


def _unpermute(tensor: FloatArray, head_dim: int) -> FloatArray:
    """Rows of each head from interleaved pairs (x0 y0 x1 y1 …) to halves (x0 x1 … y0 y1 …)."""
    paired = tensor.reshape(-1, head_dim // 2, 2, *tensor.shape[1:])
    return paired.swapaxes(1, 2).reshape(tensor.shape)


class _Keys:
    """Typed access to metadata; a missing or mistyped key is a ModelLoadError that names it."""

    def __init__(self, file_name: str, metadata: dict[str, Any]) -> None:
        self._file_name = file_name
        self._metadata = metadata

    def number(self, key: str, default: float | None = None) -> float:
        value = self._metadata.get(key, default)
        if isinstance(value, list):  # some converters write one value per layer
            value = value[0] if value and all(item == value[0] for item in value) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelLoadError(f"{self._file_name} has no usable value for {key!r}.")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        return int(self.number(key, default))

    def text(self, key: str, default: str | None = None) -> str:
        value = self._metadata.get(key, default)
        if not isinstance(value, str):
            raise ModelLoadError(f"{self._file_name} has no usable value for {key!r}.")
        return value

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._metadata.get(key, default))

    def strings(self, key: str) -> list[str]:
        value = self._metadata.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise ModelLoadError(f"{self._file_name} has no usable value for {key!r}.")
        return value

    def integers(self, key: str) -> list[int]:
        value = self._metadata.get(key, [])
        return value if isinstance(value, list) and all(isinstance(item, int) for item in value) else []

    def optional_token(self, key: str, limit: int) -> int | None:
        value = self._metadata.get(key)
        return value if isinstance(value, int) and 0 <= value < limit else None


def _config(keys: _Keys, file: GgufFile) -> ModelConfig:
    name = file.path.name
    arch = keys.text("general.architecture")
    if arch not in _ARCHITECTURES:
        raise ModelLoadError(
            f"{name} has the architecture {arch!r}, which is not supported; supported are {', '.join(_ARCHITECTURES)}."
        )
    if keys.integer(f"{arch}.expert_count", 0):
        raise ModelLoadError(f"{name} is a mixture of experts, which is not supported.")
    scaling = keys.text(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ModelLoadError(f"{name} has rotary scaling of type {scaling!r}, which is not supported.")
    hidden_size = keys.integer(f"{arch}.embedding_length")
    num_heads = keys.integer(f"{arch}.attention.head_count")
    head_dim = keys.integer(f"{arch}.attention.key_length", hidden_size // max(num_heads, 1))
    if keys.integer(f"{arch}.rope.dimension_count", head_dim) != head_dim:
        raise ModelLoadError(f"{name} rotates only a part of each head, which is not supported.")
    names = file.tensors
    if "token_embd.weight" not in names:
        raise ModelLoadError(f"{name} has no token embeddings.")
    return ModelConfig(
        architecture=arch,
        num_layers=keys.integer(f"{arch}.block_count"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=keys.integer(f"{arch}.attention.head_count_kv", num_heads),
        head_dim=head_dim,
        intermediate_size=keys.integer(f"{arch}.feed_forward_length"),
        vocab_size=names["token_embd.weight"].shape[0],  # may have more rows than there are tokens
        rms_eps=keys.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=RopeConfig(
            theta=keys.number(f"{arch}.rope.freq_base", 10_000.0),
            kind="linear" if scaling == "linear" else "default",
            factor=keys.number(f"{arch}.rope.scaling.factor", 1.0),
        ),
        context_length=keys.integer(f"{arch}.context_length"),
        tied_embeddings="output.weight" not in names,
        qkv_bias="blk.0.attn_q.bias" in names,
        output_bias="blk.0.attn_output.bias" in names,
        qk_norm="blk.0.attn_q_norm.weight" in names,
    )


def _tokenizer(keys: _Keys, tokens: list[str]) -> Tokenizer:
    kind = keys.text("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelLoadError(f"The GGUF tokenizer {kind!r} is not supported; only byte-level BPE ('gpt2') is.")
    pre = keys.text("tokenizer.ggml.pre", "gpt-2")
    merges = []
    for merge in keys.strings("tokenizer.ggml.merges"):
        left, separator, right = merge.partition(" ")
        if not separator:
            raise ModelLoadError(f"The GGUF tokenizer has a merge without two parts: {merge!r}.")
        merges.append((left, right))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # the library raises plain Exception for a merge outside the vocabulary
        raise ModelLoadError(f"The GGUF tokenizer is inconsistent: {error}.") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    types = keys.integers("tokenizer.ggml.token_type")
    marked = list(zip(tokens, types, strict=False))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in marked if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in marked if k == _USER_DEFINED])
    bos = keys.optional_token("tokenizer.ggml.bos_token_id", len(tokens))
    if bos is not None and keys.flag("tokenizer.ggml.add_bos_token", default=pre == "llama-bpe"):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[tokens[bos], "$A"], pair=None, special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut into words before the merges; must be that of the model's training."""
    if pre in ("gpt-2", "default"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    digits = {"llama-bpe": "{1,3}", "qwen2": ""}.get(pre)
    if digits is None:
        raise ModelLoadError(f"The GGUF pre-tokenizer {pre!r} is not supported.")
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS.format(digits=digits)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
