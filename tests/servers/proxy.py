"""A proxy before a server, with faults: connections that are reset, requests of S3 that are told to slow down."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import Final

_METHODS: Final = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
_XML: Final = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
_SLOW_DOWN: Final = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_XML)
)
#: Closing it sends a reset.
_ABORT: Final = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards to a port of 127.0.0.1: from one of its own, or from a socket at `path`. `slow` and `resets` are shares
    of requests that are answered with 503, or cut off; `breaks`: all for a path with this in it are; `away`: nobody is
    there. `done` counts what was done.
    """

    def __init__(self, to: int, *, path: Path | None = None, seed: int = 0) -> None:
        self.slow = self.resets = 0.0
        self.away = False
        self.breaks: str | None = None
        self.done: Counter[str] = Counter()
        self._to = to
        self._random = random.Random(seed)
        self._listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        self._listener.bind(("127.0.0.1", 0) if path is None else str(path))
        self._listener.listen(128)
        self.port = 0 if path is not None else int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self.away:
                self._abort(client)
                return
            with socket.create_connection(("127.0.0.1", self._to)) as server:
                threading.Thread(target=_copy, args=(server, client), daemon=True).start()
                while data := client.recv(1 << 16):
                    if data.startswith(_METHODS) and self._fails(client, data):
                        return
                    server.sendall(data)

    def _fails(self, client: socket.socket, request: bytes) -> bool:
        """Whether this request is not passed on."""
        drawn = self._random.random()
        path = request.split(b" ", 2)[1].decode()
        if self.away or drawn < self.resets or (self.breaks and self.breaks in path):
            self._abort(client)
            return True
        if drawn < self.resets + self.slow:
            self.done["slowed"] += 1
            client.sendall(_SLOW_DOWN + _XML)
            return True
        self.done["passed"] += 1
        return False

    def _abort(self, client: socket.socket) -> None:
        self.done["reset"] += 1
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
