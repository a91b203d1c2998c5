"""A server with requests of customers, for the source on the page about functions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


@contextmanager
def help_desk(token: str, texts: dict[str, str]) -> Iterator[str]:
    """Serve these texts by their ids, to those who have the token, and take others from everybody."""
    kept = {id: (number, text) for number, (id, text) in enumerate(texts.items())}
    changes = len(kept)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def _answer(self, status: int, content: str = "") -> None:
            data = content.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        @property
        def _id(self) -> str:
            return unquote(self.path.removeprefix("/requests/"))

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {token}":
                self._answer(401)
            elif self.path == "/requests":
                self._answer(200, json.dumps([{"id": id, "changed": str(at)} for id, (at, _) in kept.items()]))
            elif self._id in kept:
                self._answer(200, kept[self._id][1])
            else:
                self._answer(404)

        def do_PUT(self) -> None:
            nonlocal changes
            changes += 1
            kept[self._id] = changes, self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(201)

        def do_DELETE(self) -> None:
            kept.pop(self._id, None)
            self._answer(204)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
