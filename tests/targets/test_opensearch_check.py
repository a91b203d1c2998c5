"""What `check` of OpenSearch and Elasticsearch finds out, by the answers of a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from instep.errors import Away, UserError
from instep.targets.opensearch.target import OpenSearchTarget

OPENSEARCH = {"distribution": "opensearch", "number": "2.19.0"}
ELASTICSEARCH = {"number": "8.19.0", "build_flavor": "default"}


class Server:
    """Says which version it is, and does all that is asked unless it is `read_only`. Answers to requests of the method
    `lost` are not sent.
    """

    def __init__(self, version: dict[str, str], *, read_only: bool = False, lost: str = "") -> None:
        self.version, self.read_only, self.lost = version, read_only, lost
        self.asked: list[tuple[str, str]] = []

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        if method == "GET":
            return 200, {"version": self.version, "tagline": "You Know, for Search"}
        self.asked.append((method, path.partition("?")[0]))
        if self.read_only:
            error = {"type": "security_exception", "reason": "no permissions for [indices:admin/create]"}
            return 403, {"error": error, "status": 403}
        return 200, {"acknowledged": True}

    @contextmanager
    def running(self) -> Iterator[str]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = server.answer(self.command, self.path)
                if self.command == server.lost:
                    self.close_connection = True
                    return
                said = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("X-Elastic-Product", "Elasticsearch")
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_PUT = do_DELETE = handle_any  # noqa: N815 - names that http.server asks for

            def log_message(self, format: str, *args: Any) -> None:
                """Silence."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
            thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield f"http://127.0.0.1:{http.server_port}"
            finally:
                http.shutdown()
                thread.join()


@pytest.mark.parametrize("version", [OPENSEARCH, ELASTICSEARCH], ids=["OpenSearch", "Elasticsearch"])
def test_a_login_that_may_only_read_does_not_pass_the_check(version: dict[str, str]) -> None:
    server = Server(version, read_only=True)
    with server.running() as url:
        target = OpenSearchTarget(url, "reader", "secret")
        with pytest.raises(UserError, match="the server refuses: security_exception: no permissions"):
            target.check()
        server.read_only = False
        target.check()
    (_, made), (_, again), (last, dropped) = server.asked
    assert (last, dropped) == ("DELETE", again), "nothing is left of it"
    assert made != again


@pytest.mark.parametrize("version", [OPENSEARCH, ELASTICSEARCH], ids=["OpenSearch", "Elasticsearch"])
def test_a_check_leaves_nothing_behind_though_the_answer_to_its_probe_is_lost(version: dict[str, str]) -> None:
    server = Server(version, lost="PUT")
    with server.running() as url, pytest.raises(Away):
        OpenSearchTarget(url).check()
    made = {path for method, path in server.asked if method == "PUT"}
    assert {path for method, path in server.asked if method == "DELETE"} == made
    assert made


@pytest.mark.parametrize(("version", "most"), [(OPENSEARCH, 16_000), (ELASTICSEARCH, 4_096)], ids=["OpenSearch", "ES"])
def test_vectors_are_as_long_as_the_server_takes_them(version: dict[str, str], most: int) -> None:
    with Server(version).running() as url:
        target = OpenSearchTarget(url)
        target.demand_dimensions(most)
        with pytest.raises(UserError, match=f"at most {most:,} dimensions, not {most + 1:,}"):
            target.demand_dimensions(most + 1)
