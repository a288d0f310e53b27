"""A two-way stream of messages between the loader and one worker, over a socket.

Each worker has its own: nothing is locked and nothing is shared, so a worker that is killed in the middle
of a message hurts no other, and its end of the socket, closed by the system, tells at once.
"""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import struct
from typing import Any

from .shared import HAS_DESCRIPTORS

#: Length of the payload, and whether a descriptor comes with it.
_HEADER = struct.Struct("<Q?")
_CHUNK = 1 << 16


class Channel:
    """One end.

    The worker uses `send` and `receive`, which wait; the loader `post`, `flush` and `poll`, which don't.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._descriptors: collections.deque[int] = collections.deque()
        self.closed = False

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""
        return self.sock.fileno()

    # --- the worker's side ---

    def send(self, payload: bytes, descriptor: int | None = None) -> None:
        """Send a message, waiting while the other side is busy."""
        header = _HEADER.pack(len(payload), descriptor is not None)
        if descriptor is None:
            self.sock.sendall(header)
        else:
            sent = socket.send_fds(self.sock, [header], [descriptor])
            self.sock.sendall(header[sent:])
        self.sock.sendall(payload)

    def receive(self) -> bytes | None:
        """The next message, or None at the end of the stream."""
        header = self._exactly(_HEADER.size)
        return None if header is None else self._exactly(_HEADER.unpack(header)[0])

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            part = self.sock.recv(min(_CHUNK, size - len(parts)))
            if not part:
                return None
            parts += part
        return bytes(parts)

    # --- the loader's side ---

    def post(self, payload: bytes) -> None:
        """Queue a message and send what goes without waiting. A loader that waited here, for a worker that
        waits for it to take a result, would wait forever."""
        self._outbox += _HEADER.pack(len(payload), False)
        self._outbox += payload
        self.flush()

    @property
    def pending(self) -> bool:
        """Whether queued bytes wait for room."""
        return bool(self._outbox)

    def flush(self) -> None:
        """Send queued bytes as far as there is room."""
        self.sock.setblocking(False)
        try:
            while self._outbox:
                del self._outbox[: self.sock.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            # The worker is gone; `poll` will say so.
            self._outbox.clear()

    def poll(self) -> tuple[list[tuple[bytes, int | None]], bool]:
        """Complete messages (payload, descriptor) that have arrived, and whether the stream has ended."""
        self.sock.setblocking(False)
        ended = False
        try:
            while True:
                data = self._read_some()
                if not data:
                    ended = True
                    break
                self._inbox += data
                if len(data) < _CHUNK:
                    break
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        return self._complete_messages(), ended

    def _read_some(self) -> bytes:
        if not HAS_DESCRIPTORS:
            return self.sock.recv(_CHUNK)
        data, descriptors, _, _ = socket.recv_fds(self.sock, _CHUNK, 16)
        self._descriptors.extend(descriptors)
        return data

    def _complete_messages(self) -> list[tuple[bytes, int | None]]:
        messages: list[tuple[bytes, int | None]] = []
        position = 0
        while len(self._inbox) - position >= _HEADER.size:
            length, has_descriptor = _HEADER.unpack_from(self._inbox, position)
            start = position + _HEADER.size
            if len(self._inbox) - start < length:
                break
            payload = bytes(self._inbox[start : start + length])
            if has_descriptor and not self._descriptors:
                raise RuntimeError("a batch arrived without its memory: this process has too many open files (see `ulimit -n`)")
            messages.append((payload, self._descriptors.popleft() if has_descriptor else None))
            position = start + length
        del self._inbox[:position]
        return messages

    def close(self, both_ways: bool = True) -> None:
        """Close this end.

        With `both_ways` the other side sees the end even if a forked process holds a copy.
        """
        if self.closed:
            return
        self.closed = True
        if both_ways:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())


def pair() -> tuple[Channel, Any]:
    """A loader's end, and a socket to give to the worker."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
