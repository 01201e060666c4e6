"""The floor: uvloop and httptools, JSON in and JSON out, no model. `python floor_server.py PORT`.

It reads the rows into Python lists and answers one number per row, so that nothing but HTTP and JSON is paid for.
Runs in the platform's own environment.
"""

from __future__ import annotations

import asyncio
import sys

import httptools
import msgspec
import uvloop


class _Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        rows = msgspec.json.decode(self.body)["data"]
        self.body = b""
        answer = msgspec.json.encode({"predictions": [0] * len(rows)})
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer)
        )


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
