"""Embeddings are paid for once: a real HTTP endpoint counts what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from instep.documents.embed.http import close_connections
from instep.domain.jobs import JobState
from instep.errors import UserError

from . import corpus
from .conftest import Place


class Endpoint(ThreadingHTTPServer):
    """An embeddings endpoint. `asked` are the texts it got; texts with `refused` in them get a 400."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.away = False


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: two would wait for each other.
    wbufsize = -1

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        if self.server.away:
            self._answer(503, {"error": "away"})
        elif any("refused" in text for text in texts):
            self._answer(400, {"error": "too rude"})
        else:
            self.server.asked += texts
            vectors = [[float(len(text)), float(text.count("e")), 1.0] for text in texts]
            self._answer(200, {"data": [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]})

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    close_connections()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def embedded(place: Place, endpoint: Endpoint) -> Place:
    _declare(place, endpoint)
    return place


def _declare(place: Place, endpoint: Endpoint, *, model: str = "m1") -> None:
    place.declare()
    file = place.root / "instep.yaml"
    url = f"http://127.0.0.1:{endpoint.server_port}"
    declared = f"embed: {{type: openai, url: '{url}', model: {model}, dimensions: 3, api_key: 'k-secret'}}"
    file.write_text(file.read_text().replace("embed: {type: hashing, dimensions: 32}", declared))


def test_a_rename_and_a_rebuild_cost_no_new_embedding(embedded: Place, endpoint: Endpoint) -> None:
    first = embedded.run()
    assert first.counts.embedded == len(endpoint.asked) > 60
    assert len(set(endpoint.asked)) == len(endpoint.asked)
    endpoint.asked.clear()
    corpus.path(embedded.docs, 8).rename(embedded.docs / "renamed.md")
    assert embedded.run().counts.written == 1
    assert embedded.run(full_refresh=True).promoted
    assert endpoint.asked == []
    assert embedded.wrong() == ""


def test_a_changed_document_asks_for_its_changed_chunks_only(embedded: Place, endpoint: Endpoint) -> None:
    embedded.run()
    endpoint.asked.clear()
    path = corpus.path(embedded.docs, 7)
    path.write_text(path.read_text() + "\n## More\n\nA new ending that was not there before.\n")
    result = embedded.run()
    assert len(endpoint.asked) == result.counts.embedded == 1
    assert embedded.wrong() == ""


def test_another_model_asks_for_everything_again(embedded: Place, endpoint: Endpoint) -> None:
    embedded.run()
    asked = len(endpoint.asked)
    _declare(embedded, endpoint, model="m2")
    embedded.run()
    assert len(endpoint.asked) == 2 * asked


def test_a_document_that_is_refused_fails_alone(embedded: Place) -> None:
    (embedded.docs / "rude.md").write_text("# Rude\n\nThis is refused.\n")
    result = embedded.run()
    assert result.state is JobState.COMPLETED_WITH_ERRORS
    (failure,) = embedded.open().failures()
    assert (failure.stage, failure.uri.rpartition("/")[2]) == ("embed", "rude.md")
    assert embedded.wrong(keep=lambda path: path.name != "rude.md") == ""


def test_an_outage_of_the_endpoint_stops_the_job_and_the_next_run_resumes_it(
    embedded: Place, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.service.wave.OUTAGE_SECONDS", 0.5)
    endpoint.away = True
    with pytest.raises(UserError, match="503") as away:
        embedded.run()
    assert "k-secret" not in str(away.value)
    assert embedded.open().failures() == []
    endpoint.away = False
    result = embedded.run()
    assert result.state is JobState.COMPLETED
    assert embedded.wrong() == ""
