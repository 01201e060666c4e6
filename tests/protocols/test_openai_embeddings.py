"""Embeddings requests and replies, as the official SDK reads them."""

import base64
import json

import numpy as np
import pytest

from steelyard.errors import InvalidParameter, ModelFailed
from steelyard.protocols.openai.embeddings import MAX_TEXTS, parse_embeddings, render_embeddings

VECTORS = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]], dtype=np.float32)


def request(**fields):
    return parse_embeddings(json.dumps({"input": ["a", "b"], "model": "m"} | fields).encode())


def render(asked, vectors=VECTORS):
    return json.loads(render_embeddings(vectors, asked, model="m", prompt_tokens=7))


def test_one_text_and_several_are_read():
    assert request(input="one").texts == ["one"]
    assert request(input=["one", "zwei ✓"]).texts == ["one", "zwei ✓"]


@pytest.mark.parametrize(
    "wrong", [None, [], "", [""], [1, 2], [[1, 2]], {"a": 1}, ["a"] * (MAX_TEXTS + 1), ["a", None]]
)
def test_anything_but_texts_is_refused_by_name(wrong):
    with pytest.raises(InvalidParameter) as caught:
        request(input=wrong)
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("name", "wrong"), [("encoding_format", "hex"), ("dimensions", 0), ("dimensions", "3"), ("dimensions", 1.5)]
)
def test_wrong_options_are_refused_by_name(name, wrong):
    with pytest.raises(InvalidParameter) as caught:
        request(**{name: wrong})
    assert caught.value.param == name


def test_the_reply_holds_each_vector_in_order_and_the_usage():
    reply = render(request())
    assert [item["embedding"] for item in reply["data"]] == VECTORS.tolist()
    assert [item["index"] for item in reply["data"]] == [0, 1]
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert (reply["object"], reply["model"]) == ("list", "m")


def test_base64_holds_little_endian_float32():
    reply = render(request(encoding_format="base64"), VECTORS.astype(np.float64))
    decoded = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in reply["data"]]
    assert np.array_equal(decoded, VECTORS)


def test_fewer_dimensions_give_unit_vectors():
    reply = render(request(dimensions=2))
    assert np.allclose(reply["data"][0]["embedding"], [0.6, 0.8])
    with pytest.raises(InvalidParameter, match="at most 3"):
        render(request(dimensions=4))


@pytest.mark.parametrize(
    "vectors", [VECTORS[:1], VECTORS[0], VECTORS.astype(int), np.full((2, 3), np.nan), np.array([["a"], ["b"]])]
)
def test_what_is_no_vector_for_each_text_is_the_models_failure(vectors):
    with pytest.raises(ModelFailed):
        render(request(), vectors)
