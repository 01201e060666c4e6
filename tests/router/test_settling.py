"""Every way in which a request can end, streamed or not: each attempt is settled once, and only successes teach.

The kind of fault: load counters that several ends of a request decrease, or none (vllm-project/aibrix#2440, #1246).
`world` checks at its end that nothing is left and that all that was charged was settled.
"""

from __future__ import annotations

import pytest

from steelyard.policy.units import GUESS, Features
from support.raw_http import until
from support.router_world import world

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
USAGE = "prompt=100;cached=0;output=7"
COST_MMU = GUESS.mmu(Features(input_tokens=100, output_tokens=7))
STREAM = pytest.mark.parametrize("stream", [False, True])


def command(stream: bool, **more) -> dict:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi " * 400}], "max_tokens": 10}
    how = {"do": "stream", "usage": "prompt=100;cached=0", "last_usage": USAGE} if stream else {"usage": USAGE}
    return {**chat, **how, **more}


async def ask(w, *args, **headers):
    return await w.ask(command(*args, **headers.pop("more", {})), CHAT, **headers)


def billed(w) -> float:
    return w.router.table.endpoints["m"].measures.model_units.value


async def chats(w, count=1) -> None:
    w.apply(*w.replicas[:count], task="llm/v1/chat")


@STREAM
async def test_a_success_is_settled_with_its_cost(tmp_path, stream):
    async with world(tmp_path) as w:
        await chats(w)
        assert (await ask(w, stream)).complete
        assert w.router.ledger.actual_total_mmu == COST_MMU
        assert w.router.ledger.known_total_mmu == w.router.ledger.charged_total_mmu
        assert billed(w) == COST_MMU / 1000


@STREAM
@pytest.mark.parametrize("status", [400, 500])
async def test_an_error_of_the_replica_is_settled_without_one(tmp_path, stream, status):
    async with world(tmp_path) as w:
        await chats(w)
        assert (await ask(w, stream, more={"do": "status", "status": status})).status == status
        assert w.router.ledger.known_total_mmu == 0
        assert (billed(w) > 0) == (status == 500)  # the model worked, and failed


@STREAM
async def test_a_clients_timeout_is_settled(tmp_path, stream):
    async with world(tmp_path) as w:
        await chats(w)
        more = {"stall_after": 2} if stream else {"do": "hold"}
        reply = await ask(w, stream, more=more, x_request_timeout_ms="150")
        assert (reply.status, reply.complete) == ((200, False) if stream else (504, True))
        await w.settled()
        assert w.router.ledger.known_total_mmu == 0
        assert billed(w) > 0


@STREAM
async def test_who_leaves_the_line_was_never_charged(tmp_path, stream):
    async with world(tmp_path, max_concurrency=1) as w:
        await chats(w)
        holding = await w.begin(command(False, do="hold"), CHAT)
        await until(lambda: w.replicas[0].held)
        charged_mmu = w.router.ledger.charged_total_mmu
        waiting = await w.begin(command(stream), CHAT)
        await until(lambda: w.queued == 1)
        waiting.close()
        await until(lambda: w.queued == 0)
        assert w.router.ledger.charged_total_mmu == charged_mmu
        holding.close()


@STREAM
async def test_who_leaves_in_the_midst_is_settled_with_what_was_seen(tmp_path, stream):
    async with world(tmp_path) as w:
        await chats(w)
        client = await w.begin(command(stream, **({"stall_after": 3, "events": 9} if stream else {"do": "hold"})), CHAT)
        await until(lambda: w.replicas[0].held)
        if stream:
            await client.reader.readuntil(b'{"n":2}')
        client.close()
        await w.settled()
        assert w.router.ledger.known_total_mmu == 0
        if stream:
            assert billed(w) == pytest.approx(GUESS.mmu(Features(input_tokens=100, output_tokens=3)) / 1000, abs=0.01)


@STREAM
async def test_a_retry_is_charged_twice_and_settled_twice_and_billed_once(tmp_path, stream):
    async with world(tmp_path, 2) as w:
        await chats(w, 2)
        w.replicas[0].always = "die"
        for number in range(6):
            assert (await ask(w, stream)).complete
            assert billed(w) == pytest.approx((number + 1) * COST_MMU / 1000)
        await w.settled()
        assert w.router.ledger.actual_total_mmu == 6 * COST_MMU
        if w.replicas[0].requests:
            assert w.router.ledger.known_total_mmu < w.router.ledger.charged_total_mmu


@STREAM
async def test_a_cut_answer_is_settled_without_a_cost(tmp_path, stream):
    async with world(tmp_path) as w:
        await chats(w)
        reply = await ask(w, stream, more={"cut_after": 2} if stream else {"do": "cut_body"})
        assert not reply.complete
        await w.settled()
        assert w.router.ledger.known_total_mmu == 0
        assert billed(w) > 0


@STREAM
async def test_capacity_is_whole_after_many_leave_in_line_and_in_the_midst(tmp_path, stream):
    """Permits must neither leak nor come back early (lightseekorg/smg#2064)."""
    async with world(tmp_path, max_concurrency=4) as w:
        await chats(w)
        for _ in range(3):
            more = {"stall_after": 1} if stream else {"do": "hold"}
            clients = [await w.begin(command(stream, **more), CHAT) for _ in range(12)]
            await until(lambda: len(w.replicas[0].held) == 4 and w.queued == 8)
            for client in clients[::2]:
                client.close()
            await until(lambda: w.in_flight == 4 and w.queued == 2)
            for client in clients[1::2]:
                client.close()
            await w.settled()
            await until(lambda: w.replicas[0].running == 0)
        assert w.replicas[0].peak == 4
