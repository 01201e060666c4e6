"""Frames on a blocking socket: one header and one payload at a time, as `contracts/worker.py` describes them.

Used at both ends, by one thread at a time each. It knows bytes only, bounds what it accepts, and never decodes.
"""

from __future__ import annotations

import socket

from steelyard.contracts.worker import MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, PREFIX

_BUFFER_BYTES = 1 << 16


class BrokenFrame(Exception):
    """The other end sent what no frame can be; its connection is of no more use."""


class Channel:
    """Owns the socket. Both methods raise OSError when the connection fails."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = self._end = 0  # of the bytes that have come and are not yet read

    def send(self, header: bytes, payload: bytes = b"") -> None:
        """Blocks while the other end does not read."""
        head = PREFIX.pack(len(header), len(payload)) + header
        if len(payload) <= _BUFFER_BYTES:
            self.socket.sendall(head + payload)
        else:  # not copied once more
            self.socket.sendall(head)
            self.socket.sendall(payload)

    def send_with(self, header: bytes, descriptor: int) -> None:
        """A short header without a payload, and a descriptor for the other end."""
        socket.send_fds(self.socket, [PREFIX.pack(len(header), 0) + header], [descriptor])

    def receive(self) -> tuple[bytes, bytes] | None:
        """The next header and payload; None at the end of the connection. Raises BrokenFrame."""
        while self._end - self._start < PREFIX.size:
            if not self._fill(PREFIX.size):
                if self._start != self._end:
                    raise BrokenFrame("the connection ended inside a frame")
                return None
        header_bytes, payload_bytes = PREFIX.unpack_from(self._buffer, self._start)
        if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
            raise BrokenFrame(f"a frame of {header_bytes} and {payload_bytes} bytes is too large")
        self._start += PREFIX.size
        return self._take(header_bytes), self._take(payload_bytes)

    def close(self) -> None:
        self.socket.close()

    def end(self) -> None:
        """Wake whoever waits on this connection, here and there: for both it is at its end. From any thread."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed, or has ended already

    def _fill(self, wanted: int) -> bool:
        """More bytes into the buffer, which is to hold `wanted` from its start; False at the end."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + wanted > _BUFFER_BYTES:
            left = self._end - self._start
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end = 0, left
        count = self.socket.recv_into(memoryview(self._buffer)[self._end :])
        self._end += count
        return count > 0

    def _take(self, size: int) -> bytes:
        if size > _BUFFER_BYTES:
            return self._take_large(size)
        while self._end - self._start < size:
            if not self._fill(size):
                raise BrokenFrame("the connection ended inside a frame")
        taken = bytes(memoryview(self._buffer)[self._start : self._start + size])
        self._start += size
        return taken

    def _take_large(self, size: int) -> bytes:
        taken = bytearray(size)
        view = memoryview(taken)
        place = self._end - self._start
        view[:place] = self._buffer[self._start : self._end]
        self._start = self._end = 0
        while place < size:
            count = self.socket.recv_into(view[place:])
            if not count:
                raise BrokenFrame("the connection ended inside a frame")
            place += count
        return bytes(taken)
