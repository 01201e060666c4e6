"""The official openai client, unchanged, against the running platform."""

import openai
import pytest

LLM = "smollm2"
ASK = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(platform) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{platform.url}/v1", api_key=platform.token, max_retries=0)


@pytest.fixture(scope="module", params=["/v1", "/serving-endpoints"])
def any_base(platform, request) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{platform.url}{request.param}", api_key=platform.token, max_retries=0)


def test_chat_answers_with_text_and_usage(any_base):
    reply = any_base.chat.completions.create(model=LLM, messages=ASK, max_tokens=12, temperature=0)
    assert "Paris" in reply.choices[0].message.content
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason in {"stop", "length"}
    assert reply.model == LLM
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert 0 < reply.usage.completion_tokens <= 12


def test_streamed_text_equals_the_whole_answer(any_base):
    arguments = {"model": LLM, "messages": ASK, "max_tokens": 24, "temperature": 0}
    whole = any_base.chat.completions.create(**arguments)
    chunks = list(any_base.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert not chunks[-1].choices
    usage = whole.usage.to_dict()
    assert usage.pop("model_units") > 0  # told of whole answers only, for now
    assert chunks[-1].usage.to_dict() == usage
    assert len({c.id for c in chunks}) == 1


def test_a_stream_without_usage_option_has_none(client):
    chunks = list(client.chat.completions.create(model=LLM, messages=ASK, max_tokens=4, temperature=0, stream=True))
    assert all(c.usage is None and c.choices for c in chunks)


def test_same_seed_same_text_other_seed_other_text(client):
    def sample(seed: int) -> str:
        reply = client.chat.completions.create(
            model=LLM,
            messages=[{"role": "user", "content": "Write a story."}],
            max_tokens=24,
            temperature=1.2,
            seed=seed,
        )
        return reply.choices[0].message.content

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(1, 5)}) > 1


def test_n_choices_are_indexed_and_all_counted(client):
    reply = client.chat.completions.create(model=LLM, messages=ASK, max_tokens=5, n=3, temperature=1, seed=3)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert reply.usage.completion_tokens <= 15
    chunks = list(
        client.chat.completions.create(model=LLM, messages=ASK, max_tokens=5, n=2, temperature=1, stream=True)
    )
    assert {c.choices[0].index for c in chunks} == {0, 1}


def test_stop_string_ends_the_answer_before_it(client):
    ask = [{"role": "user", "content": "Count from one to ten, as digits separated by commas."}]
    free = client.chat.completions.create(model=LLM, messages=ask, max_tokens=30, temperature=0)
    text = free.choices[0].message.content
    stop = text[5:9]
    cut = client.chat.completions.create(model=LLM, messages=ask, max_tokens=30, temperature=0, stop=[stop])
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == text[: text.index(stop)]
    chunks = client.chat.completions.create(
        model=LLM, messages=ask, max_tokens=30, temperature=0, stop=stop, stream=True
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == text[: text.index(stop)]


def test_logprobs_hold_the_chosen_token_and_sum_to_at_most_one(client):
    import math

    reply = client.chat.completions.create(
        model=LLM, messages=ASK, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    content = reply.choices[0].logprobs.content
    assert len(content) == reply.usage.completion_tokens or reply.choices[0].finish_reason == "stop"
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == pytest.approx(max(top.logprob for top in token.top_logprobs))
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1 + 1e-6


def test_length_is_bounded_by_either_name_of_the_limit(client):
    for limit in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        reply = client.chat.completions.create(model=LLM, messages=ASK, temperature=0, **limit, stop=None)
        assert reply.usage.completion_tokens <= 3


def test_completions_continue_the_prompt_streaming_and_not(client):
    whole = client.completions.create(model=LLM, prompt="The capital of France is", max_tokens=6, temperature=0)
    assert whole.object == "text_completion"
    assert "Paris" in whole.choices[0].text
    chunks = client.completions.create(
        model=LLM, prompt="The capital of France is", max_tokens=6, temperature=0, stream=True
    )
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    both = client.completions.create(model=LLM, prompt=["One, two,", "Red, green,"], max_tokens=3, temperature=0)
    assert [choice.index for choice in both.choices] == [0, 1]


def test_models_lists_the_endpoints(client):
    models = {model.id: model for model in client.models.list()}
    assert {LLM, "iris", "breast-cancer"} <= set(models)
    assert client.models.retrieve(LLM).object == "model"


def test_errors_are_the_sdks_own_classes(platform, client):
    with pytest.raises(openai.NotFoundError, match="no-such-endpoint"):
        client.chat.completions.create(model="no-such-endpoint", messages=ASK)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model=LLM, messages=ASK, temperature=9)
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model=LLM, messages=[])
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=LLM, prompt="word " * 9000, max_tokens=1)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{platform.url}/v1", api_key="wrong", max_retries=0).models.list()
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="iris", messages=ASK)


def test_a_raised_error_names_the_parameter(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=LLM, messages=ASK, temperature=9)
    assert caught.value.param == "temperature"
    assert caught.value.request_id
