"""What tenants used is kept by the hour, each report counted once, and told in sums."""

import asyncio

import pytest

from steelyard.contracts.usage_report import HOUR_MS, UsageReport, UsageRow
from steelyard.control import usage as module
from steelyard.control.store import Store
from steelyard.control.usage import KEPT_MS, UsageRecord
from steelyard.errors import InvalidParameter

pytestmark = pytest.mark.anyio
NOW_MS = 500 * 24 * HOUR_MS


@pytest.fixture
async def store(store_url):
    opened = await Store.open(store_url)
    yield opened
    await opened.close()


def row(hour: int = 0, entity: str = "m", principal: str = "ada", endpoint: str = "iris", **amounts: int) -> UsageRow:
    return UsageRow(NOW_MS + hour * HOUR_MS, endpoint, entity, principal, **({"requests": 1} | amounts))


def report(*rows: UsageRow, source: str = "s", number: int = 1) -> UsageReport:
    return UsageReport(source=source, number=number, rows=list(rows))


async def requests_of(store, by="total", begin_ms=0, principal=None):
    found = await store.usage.read("iris", begin_ms, NOW_MS + 100 * HOUR_MS, by, principal)
    return {(r.hour_ms and (r.hour_ms - NOW_MS) // HOUR_MS, r.served_entity, r.principal): r.requests for r in found}


async def test_reports_add_up_by_hour_entity_and_principal(store):
    whole = {
        "requests": 2, "rows": 3, "input_tokens": 4, "cached_tokens": 5, "output_tokens": 6, "image_tokens": 7,
        "mmu": 2**40,
    }  # fmt: skip
    await store.usage.add(report(row(**whole), row(principal="bob"), row(1), row(endpoint="other")), NOW_MS)
    await store.usage.add(report(row(**whole), row(entity="n"), row(1), source="t"), NOW_MS)
    assert await requests_of(store, "hour") == {
        (0, "m", "ada"): 4,
        (0, "m", "bob"): 1,
        (0, "n", "ada"): 1,
        (1, "m", "ada"): 2,
    }
    assert await requests_of(store) == {(None, "m", "ada"): 6, (None, "m", "bob"): 1, (None, "n", "ada"): 1}
    assert await requests_of(store, principal="bob") == {(None, "m", "bob"): 1}
    assert await requests_of(store, begin_ms=NOW_MS + 1) == {(None, "m", "ada"): 2}
    first, *_ = await store.usage.read("iris", NOW_MS, NOW_MS + 1, "total", "ada")
    assert first == UsageRecord(None, "m", "ada", 4, 6, 8, 10, 12, 14, 2**41)


async def test_a_report_that_comes_again_or_late_is_counted_once_and_a_row_may_stand_twice_in_it(store):
    twice = report(row(), row(), row(1))
    for _ in range(2):
        await store.usage.add(twice, NOW_MS)
    await store.usage.add(report(row(), number=3), NOW_MS)
    await store.usage.add(report(row(), number=2), NOW_MS)
    await asyncio.gather(*(store.usage.add(report(row(), source="t"), NOW_MS) for _ in range(5)))
    assert await requests_of(store, "hour") == {(0, "m", "ada"): 4, (1, "m", "ada"): 1}


async def test_routers_report_at_once(store):
    rows = [row(hour, principal=f"user-{number}") for hour in range(2) for number in range(50)]
    await asyncio.gather(*(store.usage.add(report(*rows[::step], source=f"{step}"), NOW_MS) for step in (1, -1)))
    assert set((await requests_of(store, "hour")).values()) == {2}


async def test_names_of_any_characters_are_kept(store):
    await store.usage.add(report(row(principal="a\0b"), row(principal="ä' -- ")), NOW_MS)
    assert {principal for _, _, principal in await requests_of(store)} == {"a\N{REPLACEMENT CHARACTER}b", "ä' -- "}


async def test_old_hours_and_sources_are_forgotten_and_many_rows_are_refused(store, monkeypatch):
    await store.usage.add(report(row()), NOW_MS)
    await store.usage.add(report(row(2), row(3), source="t"), NOW_MS + KEPT_MS + 1)
    assert await requests_of(store, "hour") == {(2, "m", "ada"): 1, (3, "m", "ada"): 1}
    await store.usage.add(report(row(2)), NOW_MS + KEPT_MS + 1)  # nobody remembers that number of that source
    assert (await requests_of(store, "hour"))[2, "m", "ada"] == 2
    monkeypatch.setattr(module, "MAX_SHOWN", 1)
    with pytest.raises(InvalidParameter, match="More than 1 rows"):
        await store.usage.read("iris", 0, NOW_MS * 9, "hour", None)
