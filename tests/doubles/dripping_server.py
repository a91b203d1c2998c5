"""A server that answers one byte at a time, and is not through for a minute."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PAUSE = 0.02
_BYTES = 3_000


@contextmanager
def dripping(*, head: bool) -> Iterator[str]:
    """Its address. `head`: before the drops come the status and all headers."""
    over = threading.Event()
    threads = []

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            connection.sendall(b"content-length: %d\r\n\r\n" % _BYTES if head else b"x-much: ")
            for _ in range(_BYTES):
                if over.is_set():
                    return
                connection.sendall(b" ")
                time.sleep(_PAUSE)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # Closed.
                return
            threads.append(threading.Thread(target=drip, args=(connection,)))
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
