"""The requests that calibration sends: prompts of wanted lengths, rows of whatever form the model takes."""

import json

import pytest

from steelyard.calibration.prompts import Prompts
from steelyard.calibration.rows import MAX_BODY_BYTES, rows_of_example, rows_of_metadata
from steelyard.policy.calibration_shapes import Shape

TEMPLATE_TOKENS, TOKENS_PER_WORD = 31, 1.25


def counted(body):
    """As a model would: a template around the words."""
    words = json.loads(body)["messages"][0]["content"].split()
    return TEMPLATE_TOKENS + round(TOKENS_PER_WORD * len(words))


def learnt():
    prompts = Prompts("llm/v1/chat", seed=1)
    for words in (8, 96):
        prompts.learn(words, counted(prompts.probe(words)))
    return prompts


@pytest.mark.parametrize("tokens", [40, 64, 200, 1000, 4000])
def test_prompts_have_the_tokens_that_were_asked_for(tokens):
    body, expected, words = learnt().body(Shape(input_tokens=tokens, output_tokens=9))
    assert counted(body) == pytest.approx(tokens, abs=2, rel=0.02)
    assert expected.input_tokens == pytest.approx(counted(body), abs=2)
    assert words == len(json.loads(body)["messages"][0]["content"].split())
    assert json.loads(body)["max_tokens"] == 9
    assert json.loads(body)["ignore_eos"] is True


def test_a_prompt_shorter_than_the_template_is_told_as_what_it_is():
    body, expected, _ = learnt().body(Shape(input_tokens=3, output_tokens=1))
    assert expected.input_tokens == pytest.approx(counted(body), abs=1)


def test_prompts_differ_from_their_first_word_on_and_cached_heads_do_not():
    prompts = learnt()
    fresh = [json.loads(prompts.body(Shape(200, 4))[0])["messages"][0]["content"] for _ in range(20)]
    assert len({text.split()[0] for text in fresh}) > 5
    headed = [json.loads(prompts.body(Shape(50, 4, cached_tokens=200))[0])["messages"][0]["content"] for _ in range(5)]
    assert len({tuple(text.split()[:100]) for text in headed}) == 1
    assert len(set(headed)) == 5


def test_a_model_without_a_template_gets_plain_prompts():
    prompts = Prompts("llm/v1/completions", seed=1)
    assert prompts.path == b"/v1/completions"
    assert "prompt" in json.loads(prompts.body(Shape(20, 2))[0])


@pytest.mark.parametrize(
    ("example", "rows_of"),
    [
        ({"dataframe_split": {"columns": ["a", "b"], "index": [0, 1], "data": [[1, 2], [3, 4]]}}, "split"),
        ({"dataframe_records": [{"a": 1}, {"a": 2}]}, "dataframe_records"),
        ({"instances": [[1.0, 2.0]]}, "instances"),
        ({"inputs": [[[1], [2]]], "params": {"x": 1}}, "inputs"),
        ({"dataframe_split": {"data": [[1]]}, "params": {"x": 1}}, "split"),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 5, 300])
def test_examples_are_repeated_to_any_number_of_rows(example, rows_of, count):
    rows = rows_of_example(json.dumps(example).encode())
    body = json.loads(rows.body(count))
    value = body["dataframe_split"]["data"] if rows_of == "split" else body[rows_of]
    given = example["dataframe_split"]["data"] if rows_of == "split" else example[rows_of]
    assert value == [given[place % len(given)] for place in range(count)]
    assert body.get("params") == example.get("params")
    assert rows.max_rows >= 300
    assert len(rows.body(rows.max_rows)) <= MAX_BODY_BYTES + 200


@pytest.mark.parametrize("example", [{"messages": [{"role": "user", "content": "Hi"}]}, {"inputs": {"a": [1, 2]}}])
def test_what_cannot_be_repeated_is_sent_as_it_is(example):
    rows = rows_of_example(json.dumps(example).encode())
    assert rows.max_rows == 1
    assert json.loads(rows.body(7)) == example


@pytest.mark.parametrize("example", [b"", b"a,b\n1,2\n", b"[1, 2]"])
def test_what_is_no_json_object_is_no_example(example):
    assert rows_of_example(example) is None


def test_without_an_example_rows_follow_what_the_replica_takes():
    columns = {
        "inputs": [
            {"name": "a", "datatype": "FP64", "shape": [-1, 1]},
            {"name": "b", "datatype": "BYTES", "shape": [-1, 1]},
        ]
    }
    body = json.loads(rows_of_metadata(json.dumps(columns).encode()).body(3))
    assert body == {"dataframe_split": {"columns": ["a", "b"], "data": [[0.5, "a"]] * 3}}
    tensor = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2, 3]}]}
    assert json.loads(rows_of_metadata(json.dumps(tensor).encode()).body(2)) == {"inputs": [[[0.5] * 3] * 2] * 2}
    assert rows_of_metadata(b'{"inputs": []}') is None
    assert rows_of_metadata(b"nothing") is None
