"""The GGUF reader against the `gguf` package, and against damaged files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.engine.gguf import GgufFile
from steelyard.errors import ModelLoadError

gguf = pytest.importorskip("gguf")
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"]


def write_file(path: Path, types: list[str] = TYPES) -> dict[str, np.ndarray]:
    """A file with one tensor of each type; returns what the package makes of them."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.number", 7)
    writer.add_float32("a.float", 0.5)
    writer.add_bool("a.flag", True)
    writer.add_string("a.text", "naïve 🎉")
    writer.add_array("a.strings", ["x", "", "ünï"])
    writer.add_array("a.integers", [1, -2, 3])
    expected = {}
    for name in types:
        kind = gguf.GGMLQuantizationType[name]
        data = gguf.quantize(rng.normal(size=(6, 64)).astype(np.float32), kind)
        writer.add_tensor(name, data, raw_dtype=None if name in ("F32", "F16") else kind)
        expected[name] = gguf.dequantize(data, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


@pytest.fixture(scope="module")
def small_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_file(path)
    return path


def test_every_encoding_equals_the_reference_package_bit_for_bit(tmp_path):
    expected = write_file(tmp_path / "all.gguf")
    file = GgufFile(tmp_path / "all.gguf")
    for name, values in expected.items():
        array = file.read(name)
        assert array.dtype == np.float32
        assert array.shape == (6, 64)
        np.testing.assert_array_equal(array, values)


def test_metadata_of_every_kind_is_read(small_file):
    metadata = GgufFile(small_file).metadata
    assert metadata["a.number"] == 7
    assert metadata["a.float"] == 0.5
    assert metadata["a.flag"] is True
    assert metadata["a.text"] == "naïve 🎉"
    assert metadata["a.strings"] == ["x", "", "ünï"]
    assert metadata["a.integers"] == [1, -2, 3]


def test_a_real_model_equals_the_reference_package(smollm2_path):
    ours, reference = GgufFile(smollm2_path), gguf.GGUFReader(smollm2_path)
    assert set(ours.tensors) == {tensor.name for tensor in reference.tensors}
    for key in ("general.architecture", "llama.block_count", "llama.rope.freq_base", "tokenizer.chat_template"):
        assert ours.metadata[key] == reference.fields[key].contents()
    tokens = reference.fields["tokenizer.ggml.tokens"]
    for index in (0, 1, 17, 40_000, 49_151):
        assert ours.metadata["tokenizer.ggml.tokens"][index] == bytes(tokens.parts[tokens.data[index]]).decode()
    for tensor in [reference.tensors[index] for index in (0, 1, 2, 9, 271)]:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours.read(tensor.name), expected)


def test_an_unsupported_encoding_is_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "k.gguf", "llama")
    writer.add_tensor("w", np.zeros((2, 144), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match="Q4_K"):
        GgufFile(tmp_path / "k.gguf")


def test_other_files_are_refused(tmp_path):
    for content in (b"", b"GG", b"PK\x03\x04" + b"\0" * 100, b"GGUF" + b"\x01\0\0\0" + b"\0" * 16):
        path = tmp_path / "other.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelLoadError):
            GgufFile(path)
    with pytest.raises(ModelLoadError):
        GgufFile(tmp_path / "missing.gguf")


def test_every_truncation_is_refused(small_file, tmp_path):
    content = small_file.read_bytes()
    path = tmp_path / "cut.gguf"
    end_of_data = len(content.rstrip(b"\0"))  # the last tensor may be followed by padding
    for size in [*range(0, 600, 7), *range(600, end_of_data - 1, 301)]:
        path.write_bytes(content[:size])
        with pytest.raises(ModelLoadError):
            GgufFile(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_header_is_read_or_refused_and_nothing_else(small_file, tmp_path, changes):
    content = bytearray(small_file.read_bytes())
    for position, byte in changes:
        content[position % len(content)] = byte
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    try:
        file = GgufFile(path)
    except ModelLoadError:
        return
    for name in file.tensors:
        with np.errstate(all="ignore"):
            file.read(name)
