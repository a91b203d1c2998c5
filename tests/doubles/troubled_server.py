"""A server of OpenSearch behind a door that gets stuck: bulk requests go wrong as a script says."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

#: `status 429` and the like: answered without a word to the server; `unheard`: hung up before it heard of it; `lost`:
#: it did what was asked, and the answer got lost; `short`: its answer lacks the last item; `half`: every second item
#: is turned away with 429; `shut 4`: this request and three more, of whatever kind, are unheard; `shut`: so are all
#: from now on, until it is opened; `fine`: nothing goes wrong.
Trouble = str


class TroubledServer:
    """`script` says what happens to each bulk request, one after the other; after its end nothing goes wrong. More
    than `largest` bytes are always 413.
    """

    def __init__(self, url: str, script: Sequence[Trouble] = (), *, largest: int | None = None) -> None:
        self.sizes: list[int] = []
        #: Items of each bulk request that writes, and does not delete; those of the journal aside.
        self.items: list[int] = []
        self.turned_away = 0
        self._shut = 0.0
        self._real = urlsplit(url)
        self._script = list(script)
        self._largest = largest
        self._lock = threading.Lock()
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one packet: two would wait for each other.
            wbufsize = -1

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                door.answer(self, body)
                self.wfile.flush()

            def log_message(self, format: str, *args: Any) -> None:
                """Silence."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def quiet(self) -> bool:
        """Whether all of the script has happened."""
        return not self._script

    def open(self) -> None:
        with self._lock:
            self._shut = 0

    def __enter__(self) -> TroubledServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, asked: BaseHTTPRequestHandler, body: bytes) -> None:
        trouble = self._trouble(asked.path, body)
        if trouble == "unheard":
            asked.close_connection = True
            self.turned_away += 1
            return
        if trouble.startswith("status "):
            said = json.dumps({"error": {"type": "trouble", "reason": "as the script says"}}).encode()
            _say(asked, int(trouble.removeprefix("status ")), said)
            return
        turned_away: list[int] = []
        if trouble == "half":
            lines = body.splitlines(keepends=True)
            turned_away = list(range(1, len(lines) // 2, 2))
            body = b"".join(lines[2 * n] + lines[2 * n + 1] for n in range(len(lines) // 2) if n not in turned_away)
        status, said = self._forward(asked, body)
        if trouble == "lost":
            asked.close_connection = True
            return
        _say(asked, status, _changed(trouble, said, turned_away))

    def _trouble(self, path: str, body: bytes) -> Trouble:
        with self._lock:
            trouble = (
                self._of_bulk(path, body) if path.partition("?")[0].endswith("/_bulk") and not self._shut else "fine"
            )
            if trouble.startswith("shut"):
                self._shut = float(trouble.removeprefix("shut") or "inf")
            if not self._shut:
                return trouble
            self._shut -= 1
            return "unheard"

    def _of_bulk(self, path: str, body: bytes) -> Trouble:
        self.sizes.append(len(body))
        if "journal" not in path:
            self.items.append(body.count(b"\n") // 2)
        if self._largest is not None and len(body) > self._largest:
            return "status 413"
        return self._script.pop(0) if self._script else "fine"

    def _forward(self, asked: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._real.hostname or "", self._real.port)
        kind = {"Content-Type": asked.headers.get("Content-Type") or "application/json"}
        connection.request(asked.command, asked.path, body, kind)
        reply = connection.getresponse()
        said = reply.read()
        connection.close()
        return reply.status, said


def _changed(trouble: Trouble, said: bytes, turned_away: Sequence[int]) -> bytes:
    if trouble not in ("short", "half"):
        return said
    answer = json.loads(said)
    if trouble == "short":
        answer["items"].pop()
    for place in turned_away:
        error = {"type": "rejected_execution_exception", "reason": "the queue is full"}
        answer["items"].insert(place, {"index": {"_id": "", "status": 429, "error": error}})
    return json.dumps(answer).encode()


def _say(asked: BaseHTTPRequestHandler, status: int, said: bytes) -> None:
    asked.send_response(status)
    asked.send_header("Content-Type", "application/json")
    asked.send_header("Content-Length", str(len(said)))
    asked.end_headers()
    if asked.command != "HEAD":
        asked.wfile.write(said)
