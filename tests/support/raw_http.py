"""A client that sends bytes as they are and reads replies as they come: for what no HTTP library would do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

TIMEOUT_S = 8.0


@dataclass
class RawReply:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool  # framed to its end: not cut
    informational: list[int] = field(default_factory=list)


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: str) -> RawClient:
        scheme, _, rest = address.partition(":")
        if scheme == "unix":
            return cls(*await asyncio.open_unix_connection(rest))
        host, _, port = rest.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """A well-formed request; keyword `x_request_id` becomes header `x-request-id`."""
        lines = [f"{method} {path} HTTP/1.1", "host: test"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body or method == "POST":
            lines.append(f"content-length: {len(body)}")
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def reply(self, *, bodyless: bool = False) -> RawReply:
        """The next reply. Raises EOFError when the connection ends before a status line."""
        async with asyncio.timeout(TIMEOUT_S):
            informational: list[int] = []
            while True:
                status, headers = await self._head()
                if status >= 200:
                    break
                informational.append(status)
            if bodyless or status in {204, 304}:
                return RawReply(status, headers, b"", True, informational)
            body, complete = await self._body(headers)
            return RawReply(status, headers, body, complete, informational)

    async def _head(self) -> tuple[int, dict[str, str]]:
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            raise EOFError("no reply") from error
        first, *lines = head[:-4].split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        return int(status), {line.split(":", 1)[0].lower(): line.split(":", 1)[1].strip() for line in lines}

    async def _body(self, headers: dict[str, str]) -> tuple[bytes, bool]:
        body = b""
        try:
            if "content-length" in headers:
                return await self.reader.readexactly(int(headers["content-length"])), True
            if headers.get("transfer-encoding") != "chunked":
                return await self.reader.read(), True
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        except asyncio.IncompleteReadError as error:
            return body + error.partial, False
        except ConnectionResetError:
            return body, False
        return body, True

    async def ended(self) -> bool:
        """True when the server closes the connection without a further byte."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        """Leave at once."""
        self.writer.transport.abort()


async def ask(address: str, method: str, path: str, body: bytes = b"", **headers: str) -> RawReply:
    """One request on a connection of its own."""
    client = await RawClient.open(address)
    try:
        client.request(method, path, body, **headers)
        return await client.reply(bodyless=method == "HEAD")
    finally:
        client.close()


async def until(condition, timeout_s: float = TIMEOUT_S) -> None:
    """Poll until `condition()` is true. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
