"""Embeddings are paid for once: a real HTTP endpoint counts what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from instep.container import Container
from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from instep.errors import Away, UserError
from instep.pipeline.documents.embed.embedder import PROBE
from instep.pipeline.documents.embed.http import close_connections
from instep.telemetry.progress import Silent

from . import corpus, truth
from .conftest import Location


class Endpoint(ThreadingHTTPServer):
    """An embeddings endpoint. `asked` are the texts it got, `probes` how often it was only tried; texts with `refused`
    in them get a 400. `refusal`: what all of them get. `dimensions` are those of its vectors.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.probes = 0
        self.requests = 0
        self.refusal = 0
        self.dimensions = 3
        self.away = False
        self.answers = threading.Event()
        self.answers.set()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: two would wait for each other.
    wbufsize = -1

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.requests += 1
        self.server.answers.wait()
        if self.server.refusal:
            self._answer(self.server.refusal, {"error": "the model is being loaded"})
        elif self.server.away:
            self._answer(503, {"error": "away"})
        elif any("refused" in text for text in texts):
            self._answer(400, {"error": "too rude"})
        else:
            self.server.probes += texts == [PROBE]
            self.server.asked += [text for text in texts if text != PROBE]
            vectors = [[float(len(text)), *[1.0 + text.count("e")] * (self.server.dimensions - 1)] for text in texts]
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


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, entity: str, message: str) -> None:
        self.said.append(message)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.answers.set()
    close_connections()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def embedded(place: Location, endpoint: Endpoint) -> Location:
    _declare(place, endpoint)
    return place


def _declare(place: Location, endpoint: Endpoint, *, model: str = "m1") -> None:
    place.declare()
    file = place.root / "instep.yaml"
    url = f"http://127.0.0.1:{endpoint.server_port}"
    declared = f"embed: {{type: openai, url: '{url}', model: {model}, dimensions: 3, api_key: 'k-secret'}}"
    file.write_text(file.read_text().replace("embed: {type: hashing, dimensions: 32}", declared))


def test_a_rename_and_a_rebuild_cost_no_new_embedding(embedded: Location, endpoint: Endpoint) -> None:
    first = embedded.run()
    assert first.counts.embedded == len(endpoint.asked) > 60
    assert len(set(endpoint.asked)) == len(endpoint.asked)
    endpoint.asked.clear()
    corpus.path(embedded.docs, 8).rename(embedded.docs / "renamed.md")
    assert embedded.run().counts.written == 1
    assert embedded.run(full_refresh=True).promoted
    assert endpoint.asked == []
    assert embedded.wrong() == ""


def test_a_title_that_changes_alone_is_written_and_nothing_embedded(embedded: Location, endpoint: Endpoint) -> None:
    titled = embedded.docs / "titled.md"
    titled.write_text("---\ntitle: Zebras\n---\n\nHooves and manes.\n")
    embedded.run()
    (found,) = embedded.open().search("zebras", mode="text")
    assert (found.title, found.text) == ("Zebras", "Hooves and manes.")
    endpoint.asked.clear()
    titled.write_text("---\ntitle: Giraffes\n---\n\nHooves and manes.\n")
    result = embedded.run()
    assert (result.counts.written, result.counts.rows_written, result.counts.embedded) == (1, 1, 0)
    assert endpoint.asked == []
    assert embedded.open().search("zebras", mode="text") == []
    assert [each.title for each in embedded.open().search("giraffes", mode="text")] == ["Giraffes"]


def test_an_index_made_before_titles_were_searched_is_rebuilt_and_nothing_embedded(
    embedded: Location, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("instep.pipeline.documents.fingerprint.RULES", "texts alone")
        embedded.run()
    endpoint.asked.clear()
    (plan,) = embedded.open().plan()
    assert plan.kind is Kind.REBUILD
    assert "schema changed" in plan.why
    assert embedded.run().promoted
    assert endpoint.asked == []


@pytest.mark.parametrize("moved", [False, True])
def test_an_index_of_absolute_names_is_carried_over_and_nothing_embedded(
    embedded: Location, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moved: bool
) -> None:
    """Its titles were not searched either: one rebuild does both. What is gone since is told as ever."""
    with monkeypatch.context() as before:
        before.setattr("instep.pipeline.documents.fingerprint.RULES", "texts alone")
        assert embedded.run().counts.embedded > 60
    chunks = len(truth.stored(embedded.index))
    endpoint.asked.clear()
    requests = endpoint.requests
    if moved:
        (tmp_path / "moved").mkdir()
        for each in (embedded.root, embedded.docs):
            each.rename(tmp_path / "moved" / each.name)
        embedded.root, embedded.docs = tmp_path / "moved" / "project", tmp_path / "moved" / "docs"
    file = embedded.root / "instep.yaml"
    file.write_text(file.read_text().replace(f'path: "{tmp_path}/docs"', "path: ../docs"))
    (plan,) = embedded.open().plan()
    assert plan.kind is Kind.REBUILD
    assert plan.why[:2] == ("documents are named by their path in the project now", "schema changed")
    assert embedded.run().promoted
    assert (endpoint.asked, endpoint.requests) == ([], requests)
    assert len(truth.stored(embedded.index)) == chunks
    uris = {each.source_uri for each in embedded.open().search("river", mode="text", limit=100)}
    assert uris
    assert all(uri.startswith("project:///../docs/") for uri in uris)
    assert embedded.run().state is None
    # And back, as others may have declared it in the meantime.
    embedded.declare()
    _declare(embedded, endpoint)
    (plan,) = embedded.open().plan()
    assert plan.why[0] == "documents are named by absolute paths now"
    assert embedded.run().promoted
    assert (endpoint.asked, embedded.wrong()) == ([], "")


def test_documents_missing_after_a_rename_are_not_deleted_unasked(embedded: Location, endpoint: Endpoint) -> None:
    embedded.run()
    for number in range(60):
        if number % 10:
            corpus.path(embedded.docs, number).unlink()
    corpus.write(embedded.docs / "more", range(60, 200))
    file = embedded.root / "instep.yaml"
    file.write_text(file.read_text().replace(f'path: "{embedded.docs}"', "path: ../docs"))
    with file.open("a") as more:
        more.write("    deletes: {floor: 50}\n")
    with pytest.raises(UserError, match="54 of 60 documents are gone from the source"):
        embedded.run()
    assert embedded.run(allow_deletes=True).promoted


@pytest.mark.parametrize(
    ("dimensions", "refusal", "said"),
    [(3072, 0, "3,072 dimensions; the project says 3"), (3, 400, "being loaded"), (3, 401, "401"), (3, 404, "404")],
)
def test_an_embedder_that_is_no_use_costs_one_request_and_fails_no_document(
    embedded: Location, endpoint: Endpoint, dimensions: int, refusal: int, said: str
) -> None:
    endpoint.dimensions, endpoint.refusal = dimensions, refusal
    with pytest.raises(UserError, match=said):
        embedded.run()
    assert endpoint.requests == 1
    assert embedded.open().failures() == []
    with closing(Container(embedded.open().project)) as container, pytest.raises(UserError, match=said):
        container.setups([])[0].checks()["embedder"]()
    endpoint.dimensions, endpoint.refusal, endpoint.probes = 3, 0, 0
    assert embedded.run().state is JobState.COMPLETED
    assert endpoint.probes == 1

    # One that has worked before is not tried first; what has changed about it is told all the same.
    endpoint.dimensions, endpoint.refusal, endpoint.requests = dimensions, refusal, 0
    corpus.path(embedded.docs, 7).write_text("# Seven\n\nAnother text.\n")
    with pytest.raises(UserError, match=said):
        embedded.run()
    assert endpoint.requests <= 2
    assert embedded.open().failures() == []
    endpoint.dimensions, endpoint.refusal = 3, 0
    assert embedded.run().state is JobState.COMPLETED
    assert embedded.wrong() == ""


def test_a_changed_document_asks_for_its_changed_chunks_only(embedded: Location, endpoint: Endpoint) -> None:
    embedded.run()
    endpoint.asked.clear()
    path = corpus.path(embedded.docs, 7)
    path.write_text(path.read_text() + "\n## More\n\nA new ending that was not there before.\n")
    result = embedded.run()
    assert len(endpoint.asked) == result.counts.embedded == 1
    assert embedded.wrong() == ""


def test_another_model_asks_for_everything_again(embedded: Location, endpoint: Endpoint) -> None:
    embedded.run()
    asked = len(endpoint.asked)
    _declare(embedded, endpoint, model="m2")
    embedded.run()
    assert len(endpoint.asked) == 2 * asked


def test_a_document_that_is_refused_fails_alone(embedded: Location) -> None:
    (embedded.docs / "rude.md").write_text("# Rude\n\nThis is refused.\n")
    result = embedded.run()
    assert result.state is JobState.COMPLETED_WITH_ERRORS
    (failure,) = embedded.open().failures()
    assert (failure.stage, failure.uri.rpartition("/")[2]) == ("embed", "rude.md")
    assert embedded.wrong(keep=lambda path: path.name != "rude.md") == ""


def test_an_outage_of_the_endpoint_stops_the_job_and_the_next_run_resumes_it(
    embedded: Location, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.jobs.wave.OUTAGE_SECONDS", 0.5)
    endpoint.away = True
    with pytest.raises(UserError, match="503") as away:
        embedded.run()
    assert "k-secret" not in str(away.value)
    assert embedded.open().failures() == []
    endpoint.away = False
    result = embedded.run()
    assert result.state is JobState.COMPLETED
    assert embedded.wrong() == ""


def test_a_silent_endpoint_is_reported_and_ends_the_run_before_there_is_a_job(
    embedded: Location, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.entities.documents.embedders._ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("instep.entities.documents.embedders._LATE_SECONDS", 0.05)
    endpoint.answers.clear()
    told = Told()
    with pytest.raises(Away, match="no whole answer within"):
        embedded.open().run(progress=told)
    assert "the embedder has not answered yet" in told.said
    assert embedded.open().jobs() == []
    assert endpoint.requests == 1
    endpoint.answers.set()
    assert embedded.run().state is JobState.COMPLETED
    assert embedded.wrong() == ""


def test_queries_and_documents_have_prompts_of_their_own(embedded: Location, endpoint: Endpoint) -> None:
    file = embedded.root / "instep.yaml"
    plain = file.read_text()
    file.write_text(plain.replace("dimensions: 3,", "dimensions: 3, query_prompt: 'query: ',"))
    embedded.run()
    indexed = len(endpoint.asked)
    embedded.open().search("a river", mode="vector")
    assert endpoint.asked[indexed:] == ["query: a river"]
    # Another prompt for queries changes nothing of what is indexed; one for documents does.
    file.write_text(plain)
    assert embedded.run().state is None
    file.write_text(plain.replace("dimensions: 3,", "dimensions: 3, document_prompt: 'passage: ',"))
    (plan,) = embedded.open().plan()
    assert "embedder changed" in plan.why
    endpoint.asked.clear()
    assert embedded.run().promoted
    assert all(each.startswith("passage: ") for each in endpoint.asked)
    assert embedded.wrong() == "", "what is stored has no prompt"
