import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import BadRequest, InternalError, SteelyardError
from steelyard.protocols.openai import (
    ChatReply,
    Choice,
    CompletionReply,
    ScoredToken,
    TokenView,
    Usage,
    parse_chat,
    parse_completion,
)
from steelyard.protocols.strict_json import decode_object
from steelyard.wire.sse import DONE, error_event

HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields):
    return parse_chat({"messages": HELLO, **fields})


def completion(**fields):
    return parse_completion({"prompt": "hello", **fields})


def test_defaults_are_openais():
    request = chat()
    assert request.messages == HELLO
    assert (request.n, request.stop, request.max_tokens, request.stream) == (1, (), None, False)
    assert request.sampling.temperature == 1.0
    assert request.sampling.logprobs is None
    assert completion().max_tokens == 16


def test_every_option_is_read():
    request = chat(
        n=2,
        stop=["a", "b"],
        seed=-5,
        max_completion_tokens=7,
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        ignore_eos=True,
        presence_penalty=-2,
        frequency_penalty=2,
        logit_bias={"5": -100, "7": 1.5},
        logprobs=True,
        top_logprobs=3,
        stream=True,
        stream_options={"include_usage": True},
        user="me",
        response_format={"type": "text"},
        tools=[],
        tool_choice="auto",
        made_up_field={"x": 1},
        model="m",
    )
    sampling = request.sampling
    assert (request.n, request.stop, request.max_tokens) == (2, ("a", "b"), 7)
    assert (request.stream, request.include_usage) == (True, True)
    assert (sampling.seed, sampling.temperature, sampling.top_p, sampling.top_k) == (-5, 0, 0.5, 0)
    assert sampling.logit_bias == {5: -100, 7: 1.5}
    assert sampling.logprobs == 3
    assert sampling.ignore_eos


def test_nulls_are_defaults():
    names = (
        "n",
        "stop",
        "seed",
        "max_tokens",
        "temperature",
        "top_p",
        "logit_bias",
        "logprobs",
        "stream",
        "user",
        "tools",
    )
    assert chat(**dict.fromkeys(names)) == chat()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"role": "owner", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"temperature": 9}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 10**30}, "seed"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": "yes"}, "stream"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"audio": {}}, "audio"),
    ],
)
def test_a_bad_chat_field_is_400_and_named(fields, param):
    with pytest.raises(BadRequest) as caught:
        chat(**fields)
    assert caught.value.param.startswith(param)
    assert param in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_a_bad_completion_field_is_400_and_named(fields, param):
    with pytest.raises(BadRequest) as caught:
        completion(**fields)
    assert caught.value.param == param
    assert param in caught.value.message


def test_prompts_come_as_text_or_tokens():
    assert completion(prompt=["a", "b"]).prompts == ["a", "b"]
    assert completion(prompt=[1, 2]).prompts == [[1, 2]]
    assert completion(prompt=[[1], [2, 3]]).prompts == [[1], [2, 3]]
    assert completion(best_of=1, echo=False, suffix=None, logprobs=0).sampling.logprobs == 0


def test_text_parts_are_joined_and_tool_turns_kept():
    request = parse_chat(
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "r", "tool_call_id": "1"},
            ]
        }
    )
    assert [message["content"] for message in request.messages] == ["ab", "", "r"]
    assert request.messages[1]["tool_calls"] == [{"id": "1"}]
    assert request.messages[2]["tool_call_id"] == "1"


SCORED = [
    ScoredToken(
        TokenView("é", "é".encode(), -0.5), [TokenView("é", "é".encode(), -0.5), TokenView("x", b"x", float("-inf"))]
    )
]
USAGE = Usage(5, 3, 2)


def events(*parts: bytes):
    from openai._streaming import SSEDecoder

    decoded = list(SSEDecoder().iter_bytes(iter(parts)))
    return [json.loads(item.data) for item in decoded if item.data != "[DONE]"]


@pytest.mark.parametrize("usage_follows", [False, True])
def test_chat_chunks_parse_as_the_official_sdks_type(usage_follows):
    from openai.types.chat import ChatCompletionChunk

    reply = ChatReply("chatcmpl-1", 'm"odel', 1700000000, usage_follows)
    parts = [reply.opening(0), reply.text(0, 'say "é"\n', SCORED), reply.finish(0, "stop"), reply.usage(USAGE), DONE]
    chunks = [ChatCompletionChunk.model_validate(item, strict=True) for item in events(*parts)]
    assert len(chunks) == 4
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[1].choices[0].delta.content == 'say "é"\n'
    assert chunks[1].choices[0].logprobs.content[0].top_logprobs[1].logprob == -9999.0
    assert chunks[2].choices[0].finish_reason == "stop"
    assert chunks[3].choices == []
    assert chunks[3].usage.total_tokens == 8
    assert chunks[3].usage.prompt_tokens_details.cached_tokens == 2
    assert ("usage" in events(parts[1])[0]) is usage_follows


def test_whole_chat_parses_as_the_official_sdks_type():
    from openai.types.chat import ChatCompletion

    body = ChatReply("chatcmpl-1", "m", 1).whole([Choice("a", "stop", SCORED), Choice("b", "length")], USAGE)
    reply = ChatCompletion.model_validate_json(body, strict=True)
    assert [choice.message.content for choice in reply.choices] == ["a", "b"]
    assert reply.choices[0].logprobs.content[0].bytes == list("é".encode())
    assert reply.usage.prompt_tokens == 5


def test_completions_parse_as_the_official_sdks_type_whole_and_streamed():
    from openai.types import Completion

    reply = CompletionReply("cmpl-1", "m", 1)
    whole = Completion.model_validate_json(reply.whole([Choice("é", "stop", SCORED)], USAGE), strict=True)
    assert whole.choices[0].logprobs.top_logprobs[0] == {"é": -0.5, "x": -9999.0}
    parts = [reply.opening(0), reply.text(0, "é", SCORED), reply.text(0, "é", SCORED), reply.finish(0, "length")]
    chunks = [Completion.construct(**item) for item in events(*parts, reply.usage(USAGE))]  # as the SDK builds them
    assert [chunk.choices[0].text for chunk in chunks if chunk.choices] == ["é", "é", ""]
    assert chunks[1].choices[0].logprobs.text_offset == [1]
    assert chunks[-1].usage.total_tokens == 8


def test_a_broken_stream_ends_with_an_error_object():
    assert events(error_event(InternalError("It broke.")))[0]["error"]["message"] == "It broke."


def client_error(call):
    """The status of the SteelyardError that the call raises, or None; anything else that it raises fails the test."""
    try:
        call()
    except SteelyardError as error:
        return error.status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "prompt",
        "n",
        "stop",
        "seed",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "stream",
        "stream_options",
        "user",
        "response_format",
        "tools",
        "tool_choice",
        "echo",
        "suffix",
        "best_of",
        "modalities",
    ]
)
MESSAGE = st.fixed_dictionaries(
    {}, optional={"role": st.sampled_from(["user", "tool"]) | JSON, "content": JSON, "tool_calls": JSON}
)
BODIES = st.dictionaries(FIELDS, JSON | st.lists(MESSAGE, max_size=3), max_size=6)


@given(BODIES | JSON)
def test_any_json_is_a_request_or_a_client_error(value):
    for parse in (parse_chat, parse_completion):
        assert client_error(lambda parse=parse: parse(decode_object(json.dumps(value).encode()))) in (None, 400)


@given(BODIES)
def test_an_otherwise_good_body_with_any_field_is_a_request_or_a_client_error(value):
    for parse, base in ((parse_chat, {"messages": HELLO}), (parse_completion, {"prompt": "x"})):
        body = json.dumps({**base, **value}).encode()
        assert client_error(lambda parse=parse, body=body: parse(decode_object(body))) in (None, 400)
