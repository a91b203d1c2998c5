"""A real embeddings endpoint on a local port, which can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], Any]


def vector(text: str, dimensions: int = 3) -> list[float]:
    return [float(len(text)), 1.0, *([0.5] * (dimensions - 2))]


def good(texts: list[str]) -> Answer:
    data = [{"index": index, "embedding": vector(text)} for index, text in enumerate(texts)]
    return 200, {}, {"data": data}


class Endpoint:
    """`behave` answers a request; `script` answers the first ones, in order. Keeps what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.behave: Callable[[list[str]], Answer] = good
        self.script: list[Callable[[list[str]], Answer]] = []
        self.asked: list[list[str]] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.peers: list[int] = []
        #: Seconds that an answer takes; how many are being worked on now, and were at most.
        self.pause = 0.0
        self.open = self.most_open = 0
        self._lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        time.sleep(self.pause)
        try:
            yield
        finally:
            with self._lock:
                self.open -= 1

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        texts = body["texts"] if "texts" in body else body["input"]
        self.asked.append(texts)
        self.bodies.append(body)
        self.times.append(time.monotonic())
        self.headers.append(headers)
        return (self.script.pop(0) if self.script else self.behave)(texts)


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one packet: two would wait for each other.
        wbufsize = -1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            endpoint.paths.append(self.path)
            endpoint.peers.append(self.client_address[1])
            with endpoint.counted():
                status, headers, answer = endpoint.answer(body, dict(self.headers))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
