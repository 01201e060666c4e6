"""What requests weigh: estimated, charged, worked off while they stream, and settled with what replicas report."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.contracts.snapshot import CostView
from steelyard.contracts.usage import USAGE_HEADER
from steelyard.policy.units import GUESS, Features
from steelyard.router.weigh import BLOCK_BYTES, Weigher, hash_blocks
from support.raw_http import until
from support.router_process import fake_replicas, router_process, snapshot_of
from support.router_world import OTHER_TOKEN, TOKEN, world

CHAT = "/v1/chat/completions"
CHATS = {"task": "llm/v1/chat"}
SYSTEM = {"role": "system", "content": "Answer briefly and kindly. " * 60}


def chat_body(*messages, **more) -> bytes:
    return json.dumps({"model": "m", "messages": list(messages), **more}).encode()


def said(text, role="user"):
    return {"role": role, "content": text}


def weigher(generates=True) -> Weigher:
    made = Weigher()
    made.generates = generates
    return made


def weighed(body: bytes, w=None, session=None, several=True, principal="me"):
    return (w or weigher()).weigh(body, None, principal, session, several)


# --- estimates


def test_a_conversation_weighs_by_its_text_and_the_answer_it_allows():
    short, long = weighed(chat_body(said("hi"))), weighed(chat_body(said("hi " * 1000)))
    assert long.ask.features.input_tokens > 50 * short.ask.features.input_tokens / 2
    assert weighed(chat_body(said("hi"), max_tokens=5)).ask.features.output_tokens == 5
    assert weighed(chat_body(said("hi"), max_completion_tokens=7, max_tokens=9)).ask.features.output_tokens == 7
    assert weighed(chat_body(said("hi"), max_tokens=5, n=3)).ask.features.output_tokens == 15
    assert weighed(b'{"prompt": "once upon a time", "max_tokens": 4}').ask.features.output_tokens == 4


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "n", "user", "prompt_cache_key"])
@pytest.mark.parametrize("value", [None, -1, 0, "5", 1.5, 10**30, [], {"a": [1]}, True])
def test_a_field_of_a_wrong_kind_is_the_replicas_to_refuse(field, value):
    weight = weighed(chat_body(said("hi"), **{field: value}))
    assert weight.ask.features.output_tokens > 0
    assert weight.ask.mmu > 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'{"messages": 1}', b"\xff\xfe", b'{"messages": ' + b"[" * 10_000, b'{"messages": []}']
)
def test_whatever_comes_has_a_weight(body):
    assert weighed(body).ask.mmu > 0


@given(st.binary(max_size=400) | st.dictionaries(st.sampled_from(["messages", "n", "tools", "user"]), st.text()).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
@settings(deadline=None)
def test_any_body_has_a_weight(body):
    assert weighed(body).ask.mmu > 0


def test_rows_are_learnt_from_what_is_reported_and_equal_bodies_weigh_alike():
    w = weigher(generates=False)
    for rows in (1, 10, 100) * 10:
        body = b"x" * (150 + 30 * rows)
        weight = w.weigh(body, None, "me", None, False)
        w.learn(weight, w.price(b"rows=%d" % rows).usage, "me")
    assert w.weigh(b"x" * (150 + 30 * 50), None, "me", None, False).ask.features.rows == pytest.approx(50, rel=0.1)
    assert w.weigh(b"x" * 99, None, "me", None, False) is w.weigh(b"y" * 99, None, "me", None, False)


def test_tokens_and_lengths_of_answers_are_learnt_and_answers_by_tenant():
    w = weigher()
    body = chat_body(said("word " * 200))
    for _ in range(40):
        weight = w.weigh(body, None, "terse", None, False)
        w.learn(weight, w.price(b"prompt=210;cached=0;output=10").usage, "terse")
    assert w.weigh(body, None, "terse", None, False).ask.features.input_tokens == pytest.approx(210, rel=0.02)
    assert w.weigh(body, None, "terse", None, False).ask.features.output_tokens == pytest.approx(10, rel=0.25)


def test_a_chat_model_whose_replicas_count_rows_is_weighed_by_rows():
    w = weigher()
    body = chat_body(said("word " * 200))
    assert weighed(body, w).ask.features.output_tokens
    w.learn(weighed(body, w), w.price(b"rows=1").usage, "me")
    assert weighed(body, w).ask.features.output_tokens == 0
    w.learn(weighed(body, w), w.price(b"prompt=210;output=5").usage, "me")
    assert weighed(body, w).ask.features.output_tokens


# --- prefixes and keys


def test_the_next_turn_begins_with_the_blocks_of_the_last_one():
    first = weighed(chat_body(SYSTEM, said("What is a lever?")))
    second = weighed(
        chat_body(SYSTEM, said("What is a lever?"), said("A bar.", "assistant"), said("And a scale?" * 40))
    )
    shared = len(first.ask.blocks)
    assert shared >= 4
    assert second.ask.blocks[:shared] == first.ask.blocks
    assert len(second.ask.blocks) > shared
    assert second.ask.key == first.ask.key is not None


def test_other_tools_are_another_prefix_and_other_text_diverges_where_it_differs():
    plain = weighed(chat_body(SYSTEM, said("a" * 600))).ask.blocks
    tools = weighed(chat_body(SYSTEM, said("a" * 600), tools=[{"type": "function"}])).ask.blocks
    other = weighed(chat_body(SYSTEM, said("b" * 600))).ask.blocks
    assert not set(plain) & set(tools)
    assert plain[:4] == other[:4]
    assert plain[-1] != other[-1]


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 3000))
def test_a_hash_covers_all_before_it(text, position):
    blocks = hash_blocks(text, b"")
    assert len(blocks) == (len(text) - 1) // BLOCK_BYTES
    if position < len(text):
        changed = text[:position] + bytes([text[position] ^ 1]) + text[position + 1 :]
        same = position // BLOCK_BYTES
        others = hash_blocks(changed, b"")
        assert others[:same] == blocks[:same]
        assert not set(others[same:]) & set(blocks[same:])


def test_a_named_key_goes_before_the_conversations_head_and_the_session_before_all():
    bodies = [chat_body(SYSTEM, said("x"), **more) for more in ({}, {"user": "u"}, {"user": "v"})]
    keys = [weighed(body).ask.key for body in bodies]
    assert len(set(keys)) == 3
    both = chat_body(SYSTEM, said("x"), user="u", prompt_cache_key="p")
    assert weighed(both).ask.key == weighed(chat_body(said("y"), prompt_cache_key="p")).ask.key
    assert weighed(both, session=b"s").ask.key == weighed(chat_body(said("y")), session=b"s").ask.key
    assert weighed(both, several=False).ask.key is None


# --- live


USAGE = "prompt=100;cached=0"


@pytest.mark.anyio
async def test_a_whole_answer_is_settled_with_what_the_replica_reports(tmp_path):
    async with world(tmp_path) as w:
        w.apply(*w.replicas, **CHATS)
        await w.ask({"model": "m", "messages": [], "prompt": "x", "usage": f"{USAGE};output=7"}, CHAT)
        ledger = w.router.ledger
        assert ledger.actual_total_mmu == GUESS.mmu(Features(input_tokens=100, output_tokens=7))
        assert ledger.known_total_mmu == ledger.charged_total_mmu > 0


@pytest.mark.anyio
async def test_rows_are_settled_as_reported(tmp_path):
    async with world(tmp_path) as w:
        await w.ask({"usage": "rows=40"})
        assert w.router.ledger.actual_total_mmu == GUESS.mmu(Features(rows=40))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "how", [{"cut_after": 2}, {"no_done": True}, {"do": "status", "status": 500}, {"do": "garbage"}]
)
async def test_what_failed_is_settled_once_and_teaches_nothing(tmp_path, how):
    async with world(tmp_path) as w:
        w.apply(*w.replicas, **CHATS)
        entity = w.router.table.endpoints["m"].entities[0]
        command = {"model": "m", "messages": [said("hello " * 50)], "do": "stream", "usage": USAGE, **how}
        before = weighed(json.dumps(command).encode(), entity.weigher).ask.mmu
        await w.ask(command, CHAT)
        await w.settled()
        assert w.router.ledger.known_total_mmu == 0
        assert weighed(json.dumps(command).encode(), entity.weigher).ask.mmu == before


@pytest.mark.anyio
async def test_a_stream_is_worked_off_as_it_passes_and_settled_with_its_trailer(tmp_path):
    async with world(tmp_path) as w:
        w.apply(*w.replicas, **CHATS)
        command = {
            "model": "m", "messages": [], "prompt": "x", "max_tokens": 10,
            "do": "stream", "events": 5, "stall_after": 4, "usage": USAGE,
        }  # fmt: skip
        client = await w.begin(command, CHAT)
        await until(lambda: w.replicas[0].held)
        account = w.router.ledger.account("m-1-0")
        whole = GUESS.mmu(Features(input_tokens=100, output_tokens=10))
        rest = GUESS.mmu(Features(input_tokens=100, output_tokens=4))
        await until(lambda: account.outstanding_mmu <= whole - rest + 1)
        assert (account.answering, account.answer_mmu) == (1, account.outstanding_mmu)
        client.close()
        await w.settled()
        await w.ask({**command, "stall_after": None, "last_usage": f"{USAGE};output=9"}, CHAT)
        assert w.router.ledger.actual_total_mmu == GUESS.mmu(Features(input_tokens=100, output_tokens=9))


@pytest.mark.anyio
async def test_without_a_trailer_the_events_are_counted(tmp_path):
    async with world(tmp_path) as w:
        w.apply(*w.replicas, **CHATS)
        await w.ask({"model": "m", "messages": [], "prompt": "x", "do": "stream", "events": 6, "usage": USAGE}, CHAT)
        assert w.router.ledger.actual_total_mmu == GUESS.mmu(Features(input_tokens=100, output_tokens=7))  # and [DONE]


@pytest.mark.anyio
async def test_an_answer_longer_than_thought_raises_its_charge(tmp_path):
    async with world(tmp_path) as w:
        w.apply(*w.replicas, **CHATS)
        command = {"model": "m", "messages": [], "prompt": "x", "do": "stream", "events": 41, "stall_after": 40}
        client = await w.begin({**command, "twice": 20}, CHAT)
        await until(lambda: w.replicas[0].held)
        output = 40 * 20  # more than the 256 that are thought of an answer nobody knows
        await until(lambda: w.router.ledger.charged_total_mmu >= GUESS.mmu(Features(output_tokens=output)))
        assert w.router.ledger.outstanding_mmu <= 1
        client.close()


@pytest.mark.anyio
async def test_turns_of_a_conversation_meet_the_replica_that_holds_it_and_conversations_spread(tmp_path):
    async with fake_replicas(tmp_path, 3) as replicas:
        snapshot = snapshot_of(*replicas, max_concurrency=100, **CHATS)
        async with router_process(tmp_path / "h", snapshot) as router:
            talks = [[said(f"conversation {number} " * 1000)] for number in range(30)]
            met: list[set[str]] = [set() for _ in talks]
            for _ in range(4):
                for talk, where in zip(talks, met, strict=True):
                    tokens, cached = (sum(map(len, map(json.dumps, part))) // 4 for part in (talk, talk[:-2]))
                    usage = f"prompt={tokens};cached={cached};output=20"
                    reply = await router.ask({"model": "m", "messages": talk, "max_tokens": 5, "usage": usage}, CHAT)
                    where.add(reply.headers["x-replica"])
                    talk += [said("indeed " * 30, "assistant"), said("go on " * 30)]
            assert sum(len(where) == 1 for where in met) >= 27
            assert len(set().union(*met)) >= 2  # one that a busy machine held up at first is left alone for a while
            ledger = await router.at_rest()
            assert ledger["known_total_mmu"] == ledger["charged_total_mmu"]


@pytest.mark.anyio
async def test_a_calibrated_cost_prices_from_the_snapshot_on_and_a_senseless_one_is_not_used(tmp_path):
    async with world(tmp_path) as w:
        w.apply(*w.replicas, cost=CostView(coefficients={"row": 2.5, "a term of later": 9.0}))
        await w.ask({"usage": "rows=40"})
        assert w.router.ledger.actual_total_mmu == 100_000
        for senseless in ({"row": -1.0}, {"row": float("inf")}, {"row": float("nan")}, {}):
            before = w.router.ledger.actual_total_mmu
            w.apply(*w.replicas, cost=CostView(coefficients=senseless))
            await w.ask({"usage": "rows=40"})
            assert w.router.ledger.actual_total_mmu - before == GUESS.mmu(Features(rows=40))


@pytest.mark.anyio
@pytest.mark.parametrize("policy", ["model_units", "p2c", "round_robin"])
async def test_developers_may_compare_policies(tmp_path, policy):
    async with (
        fake_replicas(tmp_path, 2) as replicas,
        router_process(tmp_path / "h", snapshot_of(*replicas), routing=policy) as router,
    ):
        for _ in range(4):
            assert (await router.ask({})).status == 200
        reasons = {
            line.split('"')[1]
            for line in (await router.admin("/metrics")).body.decode().splitlines()
            if line.startswith("steelyard_router_decisions_total") and not line.endswith(" 0.0")
        }
        expected = {"model_units": "soonest", "p2c": "least_busy", "round_robin": "in_turn"}
        assert expected[policy] in reasons
        assert policy == "model_units" or len(reasons) == 1
        await router.at_rest()


def sample(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(name)).rpartition(" ")[2])


@pytest.mark.anyio
async def test_usage_is_told_to_the_client_and_counted_for_the_operator(tmp_path):
    async with fake_replicas(tmp_path) as replicas:
        snapshot = snapshot_of(
            *replicas, cost=CostView(coefficients={"row": 0.25, "input": 0.1, "output": 2.0}), **CHATS
        )
        async with router_process(tmp_path / "h", snapshot) as router:
            reply = await router.ask({"usage": "rows=41"})
            assert reply.headers["x-model-units"] == "10.250"
            chat = {"model": "m", "messages": [said("hi")], "usage": "prompt=50;cached=0;output=7"}
            reply = await router.ask(chat, CHAT)
            assert reply.headers["x-model-units"] == "19.000"
            stream = {
                **chat,
                "do": "stream",
                "usage": "prompt=50;cached=20",
                "last_usage": "prompt=50;cached=20;output=3",
            }
            assert (await router.ask(stream, CHAT)).complete
            refused = await router.ask({"do": "status", "status": 400, "usage": "rows=9"})
            assert "x-model-units" not in refused.headers
            text = (await router.admin("/metrics")).body.decode()
            taken = {name: sample(text, f'steelyard_router_{name}_total{{endpoint="m"}}') for name in (
                "model_units", "rows", "input_tokens", "cached_tokens", "output_tokens",
            )}  # fmt: skip
            assert taken == {
                "model_units": pytest.approx(10.25 + 19 + 3 + 6), "rows": 41, "input_tokens": 100, "cached_tokens": 20,
                "output_tokens": 10,
            }  # fmt: skip
            assert "steelyard_router_image_tokens_total" not in text
            await router.at_rest()


@pytest.mark.anyio
@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 0}}])
async def test_the_usage_of_a_whole_answer_holds_its_model_units(tmp_path, usage):
    answer = {"choices": [{"message": {"content": 'He said: "usage":{"'}}], "usage": usage}
    async with world(tmp_path) as w:
        w.apply(*w.replicas, cost=CostView(coefficients={"input": 0.1, "output": 2.0}), **CHATS)

        def replica(request, reply):
            body = json.dumps(answer, separators=(",", ":")).encode()
            headers = [(b"content-type", b"application/json"), (USAGE_HEADER, b"prompt=50;cached=0;output=7")]
            reply.send(200, headers, body)

        w.replicas[0].server.handler = replica
        reply = await w.ask({"model": "m", "messages": [said("hi")]}, CHAT)
        assert json.loads(reply.body) == {**answer, "usage": {**usage, "model_units": 19.0}}
        assert reply.headers["x-model-units"] == "19.000"


@pytest.mark.anyio
async def test_who_asks_for_much_waits_for_who_asks_for_little(tmp_path):
    async with world(tmp_path, max_concurrency=1) as w:
        w.apply(*w.replicas, **CHATS)
        holding = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        chat = {"model": "m", "messages": [said("hi")], "usage": "prompt=10"}
        clients = []
        for token, count, tokens in ((TOKEN, 4, 200), (OTHER_TOKEN, 8, 20)):
            for number in range(count):
                usage = f"prompt=10;output={tokens}"
                command = {**chat, "max_tokens": tokens, "usage": usage, "mark": f"{tokens}-{number}"}
                client = await w.begin(command, CHAT, authorization=f"Bearer {token}")
                clients.append(client)
                await until(lambda: w.queued == len(clients))
        w.replicas[0].release()
        for client in clients:
            assert (await client.reply()).status == 200
            client.close()
        holding.close()
        order = [json.loads(request.body)["mark"] for request in w.replicas[0].requests[1:]]
        assert order.index("20-7") < order.index("200-2")  # after two of the large ones all small ones were served


@pytest.mark.anyio
async def test_retry_after_is_the_time_in_which_the_work_that_waits_is_done(tmp_path):
    async with world(tmp_path, max_concurrency=1, queue_limit=4) as w:
        w.apply(*w.replicas, cost=CostView(coefficients={"output": 1000.0}), **CHATS)
        chat = {"model": "m", "messages": [said("hi")], "max_tokens": 3, "do": "hold"}
        clients = [await w.begin(chat, CHAT) for _ in range(5)]
        await until(lambda: w.queued == 4)
        reply = await w.ask(chat, CHAT)
        assert reply.status == 429
        assert 15 <= int(reply.headers["retry-after"]) <= 18 + 1  # five times three seconds, and up to a fifth more
        for client in clients:
            client.close()
