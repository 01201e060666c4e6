"""Rate limits at the router: who is refused and told what, and what every kind of end gives back."""

from __future__ import annotations

import json

import pytest

from steelyard.contracts.snapshot import RateLimitView
from steelyard.policy.rate_limits import Kind, Scope
from steelyard.policy.units import GUESS, Features
from support.raw_http import until
from support.router_world import INVOCATIONS, OTHER_TOKEN, charge_of, world

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
USAGE = "prompt=100;cached=0;output=7"
OTHER = {"authorization": f"Bearer {OTHER_TOKEN}"}
STREAM = pytest.mark.parametrize("stream", [False, True])


def chat(**more) -> dict:
    return {"model": "m", "messages": [{"role": "user", "content": "hi " * 400}], "max_tokens": 10, **more}


def answered(stream: bool) -> dict:
    how = {"do": "stream", "usage": "prompt=100;cached=0", "last_usage": USAGE} if stream else {"usage": USAGE}
    return chat(**how)


def taken(w, kind: Kind, scope: Scope = Scope.ENDPOINT, who: str = "") -> int:
    bucket = w.router.table.endpoints["m"].limiter.bucket(kind, scope, who)
    return 0 if bucket is None else bucket.taken


async def every_limit(w) -> None:
    """So high that nothing reaches it."""
    high = 10**9
    w.limit(
        RateLimitView(calls=high, input_tokens=high, output_tokens=high, tokens=high, model_units=high),
        task="llm/v1/chat",
    )


def all_taken(w) -> list[int]:
    kinds = (Kind.REQUESTS, Kind.INPUT_TOKENS, Kind.OUTPUT_TOKENS, Kind.TOKENS, Kind.MMU)
    return [taken(w, kind) for kind in kinds]


async def test_who_is_above_the_limit_is_told_which_and_when_to_come_back(tmp_path):
    async with world(tmp_path) as w:
        w.limit(RateLimitView(key="user", calls=2))
        assert [(await w.ask({})).status for _ in range(3)] == [200, 200, 429]
        refused = await w.ask({})
        told = json.loads(refused.body)
        assert told["error_code"] == "REQUEST_LIMIT_EXCEEDED"
        assert told["message"] == (
            "Endpoint 'm' cannot take the request: The limit of 2 requests per minute per user is spent."
        )
        assert 1 <= int(refused.headers["retry-after"]) <= 75
        assert (await w.ask({}, **OTHER)).status == 200  # has a budget of its own
        assert len(w.replicas[0].requests) == 3
        text = w.router.measures.set.render().decode()
        assert 'steelyard_router_errors_total{cause="rate_limit",endpoint="m"} 2.0' in text


async def test_openai_clients_read_the_refusal_in_their_own_shape(tmp_path):
    async with world(tmp_path) as w:
        w.limit(RateLimitView(tokens=5), task="llm/v1/chat")
        refused = await w.ask(chat(), CHAT)
        fault = json.loads(refused.body)["error"]
        assert (refused.status, fault["type"], fault["code"]) == (429, "rate_limit_error", "REQUEST_LIMIT_EXCEEDED")
        assert "which is above the limit of 5 tokens per minute of the endpoint" in fault["message"]
        assert "retry-after" not in refused.headers  # it never fits


async def test_a_group_shares_its_limit_and_others_have_none(tmp_path):
    async with world(tmp_path) as w:
        w.groups = {"me": ["g"], "other": ["h"]}
        w.limit(RateLimitView(key="user_group", principal="g", calls=1))
        assert [(await w.ask({})).status for _ in range(2)] == [200, 429]
        assert [(await w.ask({}, **OTHER)).status for _ in range(2)] == [200, 200]
        w.groups = {"me": ["g"], "other": ["g"]}
        w.limit(RateLimitView(key="user_group", principal="g", calls=1))
        assert (await w.ask({}, **OTHER)).status == 429  # what was taken still counts


@STREAM
async def test_a_success_is_charged_for_what_it_really_took(tmp_path, stream):
    async with world(tmp_path) as w:
        await every_limit(w)
        assert (await w.ask(answered(stream), CHAT)).complete
        cost_mmu = GUESS.mmu(Features(input_tokens=100, output_tokens=7))
        await w.settled()
        assert all_taken(w) == [1, 100, 7, 107, cost_mmu]


async def test_rows_are_charged_in_model_units(tmp_path):
    async with world(tmp_path) as w:
        await every_limit(w)
        await w.ask({"usage": "rows=5"})
        assert all_taken(w) == [1, 0, 0, 0, GUESS.mmu(Features(rows=5))]


async def test_what_is_reserved_keeps_others_out_until_it_is_known(tmp_path):
    async with world(tmp_path) as w:
        command = {"do": "hold"}
        w.limit(RateLimitView(model_units=charge_of(command) // 1000 + 1))
        holding = await w.begin(command)
        await until(lambda: w.replicas[0].held)
        assert (await w.ask({})).status == 429
        holding.close()
        await w.settled()


@STREAM
@pytest.mark.parametrize("how", ["die", "garbage"])
async def test_what_fails_on_our_side_costs_nothing(tmp_path, stream, how):
    async with world(tmp_path, replicas=2) as w:
        await every_limit(w)
        assert (await w.ask(chat(do=how, stream=stream), CHAT)).status == 502
        await w.settled()
        assert all_taken(w) == [0] * 5


async def test_a_stream_that_breaks_off_costs_nothing(tmp_path):
    async with world(tmp_path) as w:
        await every_limit(w)
        assert not (await w.ask(chat(do="stream", cut_after=2), CHAT)).complete
        await w.settled()
        assert all_taken(w) == [0] * 5


async def test_a_refused_request_counts_but_takes_nothing_else(tmp_path):
    async with world(tmp_path) as w:
        await every_limit(w)
        assert (await w.ask(chat(do="status", status=400), CHAT)).status == 400
        assert all_taken(w) == [1, 0, 0, 0, 0]


async def test_who_leaves_a_stream_pays_for_what_came_of_it(tmp_path):
    async with world(tmp_path) as w:
        await every_limit(w)
        client = await w.begin(chat(do="stream", usage="prompt=100;cached=0", events=9, stall_after=4), CHAT)
        exchange = await_one(w)
        await until(lambda: exchange() is not None and exchange()._watch is not None and exchange()._watch.events == 4)
        client.close()
        await w.settled()
        calls, input_tokens, output_tokens, tokens, mmu = all_taken(w)
        assert (calls, output_tokens, tokens) == (1, 4, input_tokens + 4)
        assert input_tokens > 0
        assert mmu > 0


async def test_who_is_retried_is_charged_once(tmp_path):
    async with world(tmp_path, replicas=2) as w:
        await every_limit(w)
        w.replicas[0].always = "drain"
        assert {(await w.ask(answered(False), CHAT)).status for _ in range(4)} == {200}
        assert all_taken(w)[:4] == [4, 400, 28, 428]


async def test_who_may_not_wait_or_leaves_the_line_is_charged_nothing(tmp_path):
    async with world(tmp_path, max_concurrency=1, queue_limit=1) as w:
        await every_limit(w)
        holding = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        waiting = await w.begin({})
        await until(lambda: w.queued == 1)
        before = all_taken(w)
        assert before[0] == 2
        assert (await w.ask({})).status == 429
        assert all_taken(w) == before
        waiting.close()
        await until(lambda: w.queued == 0)
        assert all_taken(w)[0] == 1
        assert (await w.ask({}, x_request_timeout_ms="100")).status == 504  # waited, and was never sent
        assert all_taken(w)[0] == 1
        holding.close()


async def test_limits_change_under_way_and_what_was_taken_counts(tmp_path):
    async with world(tmp_path) as w:
        w.limit(RateLimitView(calls=5))
        for _ in range(3):
            await w.ask({})
        holding = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        w.limit(RateLimitView(calls=4))
        assert (await w.ask({})).status == 429
        w.limit()
        assert w.router.table.endpoints["m"].limiter is None
        assert (await w.ask({})).status == 200
        w.replicas[0].release()
        assert (await holding.reply()).status == 200


async def test_a_limit_that_makes_no_sense_changes_nothing_of_the_routing(tmp_path):
    async with world(tmp_path) as w:
        for limit in (RateLimitView(calls=0), RateLimitView(key="user_group", calls=1)):
            with pytest.raises(ValueError, match="limit"):
                w.limit(limit)
        assert (await w.ask({}, INVOCATIONS)).status == 200


def await_one(w):
    """The one exchange that lives, once it does."""
    return lambda: next(iter(w.router.live), None)
