"""How much cache an engine takes and what crosses its socket."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine.config import ModelConfig, RopeConfig
from steelyard.engine.messages import AddRequest, Command, EngineOptions, FrameReader, SamplingParams, frame
from steelyard.engine.sizing import engine_limits
from steelyard.errors import ModelLoadError

GIB = 1 << 30
CONFIG = ModelConfig(
    architecture="llama", num_layers=30, hidden_size=576, num_heads=9, num_kv_heads=3, head_dim=64,
    intermediate_size=1536, vocab_size=49152, rms_eps=1e-5, rope=RopeConfig(1e5), context_length=8192,
)  # fmt: skip


def limits(memory=16 * GIB, available=16 * GIB, **options):
    return engine_limits(CONFIG, EngineOptions("", **options), memory_limit_bytes=memory, available_bytes=available)


def test_the_cache_is_a_bounded_share_of_memory():
    found = limits()
    assert found.max_model_len == 8192
    assert found.num_blocks * 16 * CONFIG.kv_bytes_per_token <= 4 * GIB
    assert limits(available=2 * GIB).num_blocks < found.num_blocks / 3


def test_more_than_full_sequences_need_is_never_taken():
    assert limits(memory=10_000 * GIB, available=10_000 * GIB).num_blocks == 32 * 512 + 1
    assert limits(max_sequences=1, max_model_len=100).num_blocks == 7 + 1


def test_a_small_machine_shortens_the_context_and_a_tiny_one_is_refused():
    found = limits(memory=GIB, available=GIB)
    assert 128 <= found.max_model_len < 8192
    assert found.max_model_len <= (found.num_blocks - 1) * 16
    with pytest.raises(ModelLoadError, match="Too little memory"):
        limits(memory=GIB // 64)


@given(st.lists(st.lists(st.integers(0, 2**31), max_size=20), max_size=6), st.integers(1, 50))
def test_frames_survive_any_cutting(prompts, piece):
    commands = [AddRequest(index, prompt, SamplingParams(seed=index), 5) for index, prompt in enumerate(prompts)]
    stream = b"".join(map(frame, commands))
    reader, bodies = FrameReader(), []
    for start in range(0, len(stream), piece):
        bodies += reader.feed(stream[start : start + piece])
    decoder = msgspec.msgpack.Decoder(Command)
    assert [decoder.decode(body) for body in bodies] == commands


def test_an_absurd_frame_is_refused():
    with pytest.raises(ValueError, match="exceeds"):
        FrameReader().feed(b"\xff\xff\xff\xff")
