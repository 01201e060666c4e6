"""What a replica says that a request took: read back as it was written, at whichever end of a reply it comes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contracts.usage import USAGE_HEADER, RequestUsage, encode_rows, read_usage
from steelyard.wire.client import Pool, ResponseSink
from support.raw_http import until

AMOUNTS = st.integers(0, 10**12 - 1)
UNKNOWN = st.none() | AMOUNTS


@given(AMOUNTS, UNKNOWN, UNKNOWN, AMOUNTS, AMOUNTS)
def test_it_is_read_as_it_was_written(prompt, cached, output, image, rows):
    usage = RequestUsage(
        prompt_tokens=prompt, cached_tokens=cached, output_tokens=output, image_tokens=image, rows=rows
    )
    value = usage.encode()
    if not value:
        return
    read = read_usage(value)
    assert read is not None
    assert (read.prompt_tokens, read.cached_tokens, read.output_tokens) == (prompt, cached, output)
    assert (read.image_tokens, read.rows) == (image, rows)


def test_rows_alone_have_the_same_form():
    assert encode_rows(7) == RequestUsage(rows=7).encode()


@pytest.mark.parametrize("value", [b"", b"rows", b"rows=", b"rows=-1", b"rows=1.5", b"rows=%d" % 10**12, b"prompt=1;x"])
def test_what_is_no_usage_is_none(value):
    assert read_usage(value) is None


def test_parts_of_a_later_version_are_passed_over():
    assert read_usage(b"prompt=3;audio=9").prompt_tokens == 3


class Noting(ResponseSink):
    """Notes what came, in order."""

    def __init__(self) -> None:
        self.headers, self.said, self.usage = {}, [], None

    def on_head(self, status, headers, content_length) -> None:
        self.headers = dict(headers)
        self.said.append("head")

    def on_piece(self, data) -> None:
        self.said.append("piece")

    def on_usage(self, usage) -> None:
        self.usage = usage
        self.said.append("usage")

    def on_end(self) -> None:
        self.said.append("end")

    def on_failure(self, failure) -> None:
        self.said.append("failure")


async def replies_of(path, answers: list[list[bytes]]) -> list[Noting]:
    """What a pool makes of answers that come on one connection, each in so many writes."""

    async def serve(reader, writer) -> None:
        for parts in answers:
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)

    server = await asyncio.start_unix_server(serve, str(path))
    pool = Pool(f"unix:{path}")
    sinks = []
    for _ in answers:
        sink = Noting()
        pool.send(sink, b"GET / HTTP/1.1\r\nhost: t\r\n\r\n", b"")
        await until(lambda sink=sink: sink.said[-1:] == ["end"])
        sinks.append(sink)
    assert len(pool.heads) <= 1
    pool.close()
    server.close()
    return sinks


@pytest.mark.anyio
async def test_it_differs_between_replies_whose_head_is_remembered_once(tmp_path):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nendpoint-load-metrics: JSON {}\r\n"
    answers = [
        [head + b"x-steelyard-usage: rows=%d\r\nx-request-id: i\r\ncontent-length: 2\r\n\r\nok" % rows]
        for rows in (1, 2, 30)
    ]
    answers.append([head + b"x-request-id: i\r\ncontent-length: 2\r\n\r\nok"])
    sinks = await replies_of(tmp_path / "s", answers)
    assert [sink.headers.get(USAGE_HEADER) for sink in sinks] == [b"rows=1", b"rows=2", b"rows=30", None]


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [False, True])
async def test_a_streams_trailer_is_told_before_its_end(tmp_path, cut):
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n"
    tail = b"0\r\nX-Steelyard-Usage: prompt=5;output=3\r\nx-other: 1\r\n\r\n"
    (sink,) = await replies_of(tmp_path / "s", [[head, tail] if cut else [head + tail]])
    assert sink.usage == b"prompt=5;output=3"
    assert sink.said.index("usage") < sink.said.index("end")
