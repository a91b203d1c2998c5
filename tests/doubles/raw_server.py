"""A server that answers each request with bytes as they are, and closes the connection then."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

#: Drops of an answer, and the seconds between them: it is not through for a minute.
_DROPS = 3_000
_PAUSE = 0.02


@contextmanager
def answering(*answers: Iterable[bytes]) -> Iterator[str]:
    """Its address. Each request gets the next of these answers, and the last one again."""
    over = threading.Event()
    threads = []

    def answer(connection: socket.socket, parts: Iterable[bytes]) -> None:
        with connection, suppress(OSError):
            _read(connection)
            for part in parts:
                if over.is_set():
                    return
                connection.sendall(part)

    def serve() -> None:
        for number in range(1_000):
            try:
                connection, _ = server.accept()
            except OSError:  # Closed.
                return
            said = answers[min(number, len(answers) - 1)]
            threads.append(threading.Thread(target=answer, args=(connection, said)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threads.append(threading.Thread(target=serve))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            for each in threads:
                each.join()


def _read(connection: socket.socket) -> None:
    """Read all of a request: closing on what was not read would cut the answer off."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65_536)


def whole(body: bytes, *headers: str, length: int | None = None) -> tuple[bytes]:
    """An answer with this body, of which the head says that it is as long, or has another `length`."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body) if length is None else length}", "Connection: close"]
    return ("\r\n".join([*lines, *headers, "", ""]).encode() + body,)


def endless(part: bytes, *headers: str) -> Iterator[bytes]:
    """An answer that never ends."""
    yield "\r\n".join(["HTTP/1.1 200 OK", "Connection: close", *headers, "", ""]).encode()
    while True:
        yield part


@dataclass(frozen=True)
class Drops:
    """An answer that comes one byte at a time. `head`: before the drops come the status and all headers."""

    head: bool

    def __iter__(self) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        yield b"content-length: %d\r\n\r\n" % _DROPS if self.head else b"x-much: "
        for _ in range(_DROPS):
            yield b" "
            time.sleep(_PAUSE)
