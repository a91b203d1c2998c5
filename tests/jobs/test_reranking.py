"""The first hits of a search in the order of a reranker: a function, or an endpoint that is asked for real."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import instep
from instep.errors import UserError
from instep.pipeline import code_fingerprint
from instep.project import Project
from instep.telemetry.progress import Silent

MODULE = """
seen = []


def scores(query, texts):
    seen.append(list(texts))
    return [float(each.rsplit(" ", 1)[-1].rstrip(".")) for each in texts]


def short(query, texts):
    return [1.0]


def huge(query, texts):
    return [10**400 for _ in texts]


def broken(query, texts):
    raise ValueError("no model")
"""
NAME = "reranking_functions_of_a_test"
COUNT = 30


class Endpoint(BaseHTTPRequestHandler):
    """Scores a text by the number at its end."""

    protocol: ClassVar[str] = "cohere"
    status: ClassVar[int] = 200
    script: ClassVar[list[int]] = []  # States of the first answers.
    answer: ClassVar[bytes | None] = None
    pause: ClassVar[float] = 0.0
    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({**body, "key": self.headers.get("Authorization")})
        time.sleep(self.pause)
        sent = self.scored(body) if self.answer is None else self.answer
        self.send_response(self.script.pop(0) if self.script else self.status)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def scored(self, body: dict[str, Any]) -> bytes:
        texts = body["texts" if self.protocol == "tei" else "documents"]
        name = "score" if self.protocol == "tei" else "relevance_score"
        found = [{"index": at, name: float(each.rsplit(" ", 1)[-1].rstrip("."))} for at, each in enumerate(texts)]
        return json.dumps(found[::-1] if self.protocol == "tei" else {"results": found[::-1]}).encode()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(**how: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    handler = type("Handler", (Endpoint,), {"asked": [], "script": [], **how})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/rerank", handler.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{NAME}.py").write_text(MODULE)
    for number in range(COUNT):
        name = "alice" if number % 2 else "public"
        text = f"---\nacl: [{name}]\n---\nThe tide of the harbour {'low ' * (number % 7)}is {(number * 7) % COUNT}.\n"
        (tmp_path / "docs" / f"{number}.md").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield tmp_path
    sys.modules.pop(NAME, None)
    code_fingerprint._loaded.clear()


def opened(root: Path, rerank: dict[str, Any] | None, **more: Any) -> instep.Instep:
    entity = {"source": {"type": "files", "path": "docs"}, "target": "index", "search": {"rerank": rerank}, **more}
    targets = {"index": {"type": "lance", "uri": "index"}}
    declared = {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {"Page": entity}}
    return instep.Instep(Project.model_validate(declared))


def function(name: str = "scores", **more: Any) -> dict[str, Any]:
    return {"type": "python", "function": f"{NAME}:{name}", **more}


def numbers(found: Any) -> list[int]:
    return [int(each.text.rsplit(" ", 1)[-1].rstrip(".")) for each in found]


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_the_first_hits_are_in_the_rerankers_order_and_the_others_behind_them(root: Path, mode: Any) -> None:
    plain = opened(root, None)
    plain.run()
    before = plain.search("tide", mode=mode, limit=COUNT)
    found = opened(root, function(top=12)).search("tide", mode=mode, limit=COUNT)
    assert numbers(found[:12]) == sorted(numbers(before[:12]), reverse=True) != numbers(before[:12])
    assert [each.score_kind for each in found] == ["rerank"] * 12 + [each.score_kind for each in before[12:]]
    assert [each.chunk_id for each in found[12:]] == [each.chunk_id for each in before[12:]]
    assert [each.score for each in found[:12]] == numbers(found[:12])
    assert opened(root, function(top=12)).plan()[0].kind == "nothing", "it is no part of an index"


@pytest.mark.parametrize("group", [False, True])
def test_pages_fit_together(root: Path, group: bool) -> None:
    project = opened(root, function(top=10))
    project.run()
    whole = project.search("tide", mode="text", limit=COUNT, group=group)
    pages = [project.search("tide", mode="text", limit=4, offset=at, group=group) for at in range(0, COUNT, 4)]
    assert [each.chunk_id for page in pages for each in page] == [each.chunk_id for each in whole]
    assert len({each.chunk_id for each in whole}) == COUNT


def test_what_a_person_may_not_read_is_never_sent(root: Path) -> None:
    project = opened(root, function(top=50), columns={"acl": "string[]"}, readers="acl")
    project.run()
    assert len(project.search("tide", limit=50)) == COUNT // 2
    (texts,) = sys.modules[NAME].seen
    assert len(texts) == COUNT // 2
    odd = {str((number * 7) % COUNT) for number in range(1, COUNT, 2)}
    assert not odd & {each.rsplit(" ", 1)[-1].rstrip(".") for each in texts}


@pytest.mark.parametrize("protocol", ["cohere", "tei"])
def test_an_endpoint_is_asked_once_by_its_protocol(root: Path, protocol: str) -> None:
    with serving(protocol=protocol) as (url, asked):
        rerank = {"type": "http", "url": url, "protocol": protocol, "model": "m", "api_key": "sk-12345", "top": 9}
        project = opened(root, rerank)
        project.run()
        found = project.search("tide of the sea", mode="text", limit=5)
    assert numbers(found) == sorted(numbers(found), reverse=True)
    (body,) = asked
    assert (body["query"], body["model"], body["key"]) == ("tide of the sea", "m", "Bearer sk-12345")
    assert len(body["texts" if protocol == "tei" else "documents"]) == 9


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"status": 409}, "answered 409"),
        ({"status": 503}, "answered 503"),
        ({"pause": 3.0}, "no answer within 0.3 s"),
        (None, "out of reach"),
    ],
)
def test_a_reranker_that_is_away_is_passed_over_and_said(root: Path, how: dict[str, Any] | None, said: str) -> None:
    opened(root, None).run()
    before = opened(root, None).search("tide", mode="text", limit=COUNT)
    told: list[str] = []

    class Telling(Silent):
        def say(self, who: str, text: str) -> None:
            told.append(f"{who}: {text}")

    with serving(**(how or {})) as (url, _):
        rerank = {"type": "http", "url": url if how else "http://127.0.0.1:9/rerank", "timeout": "300ms"}
        found = opened(root, rerank).search("tide", mode="text", limit=COUNT, progress=Telling())
    assert [each.chunk_id for each in found] == [each.chunk_id for each in before]
    assert len(told) == 1
    assert "not reranked" in told[0]
    assert said in told[0]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"status": 401, "answer": b'{"message": "bad key sk-12345"}'}, r"refuses it \(401\)"),
        ({"answer": b"<html>"}, "has no score for each text"),
        ({"answer": b'{"results": [{"index": 0, "relevance_score": 1}]}'}, "has no score for each text"),
        ({"answer": b'{"results": ' + b"[" * 100_000}, "has no score for each text"),
        ({"answer": json.dumps([{"index": n, "score": "x"} for n in range(50)]).encode()}, "other than a number"),
        ({"answer": b"[" + b",".join(b'{"index": %d, "score": NaN}' % n for n in range(50)) + b"]"}, "not numbers"),
    ],
)
def test_a_reranker_that_is_wrong_is_an_error_without_its_key(root: Path, how: dict[str, Any], said: str) -> None:
    with serving(**how) as (url, _):
        project = opened(root, {"type": "http", "url": url, "api_key": "sk-12345"})
        project.run()
        with pytest.raises(UserError, match=said) as caught:
            project.search("tide", mode="text")
    assert "sk-12345" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("short", "gave 1 scores for 30 texts"),
        ("broken", "ValueError: no model"),
        ("huge", "gave something other than a number"),
    ],
)
def test_a_function_that_is_wrong_is_an_error_with_its_place(root: Path, name: str, said: str) -> None:
    project = opened(root, function(name))
    project.run()
    with pytest.raises(UserError, match=said) as caught:
        project.search("tide", mode="text")
    assert NAME in str(caught.value)


@pytest.mark.parametrize(
    ("rerank", "said"),
    [
        ({"type": "cohere"}, "not one of the allowed values"),
        ({"type": "http"}, "url"),
        ({"type": "http", "url": "ftp://x"}, "must start with http"),
        ({"type": "http", "url": "http://x:99999"}, "has no valid host or port"),
        ({"type": "http", "url": "http://x", "top": 1}, "greater than or equal to 2"),
        ({"type": "python", "function": "mine.scores"}, "function"),
    ],
)
def test_what_cannot_rerank_is_refused(root: Path, rerank: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        opened(root, rerank)


def test_quality_is_measured_with_it(root: Path) -> None:
    (root / "judged.jsonl").write_text('{"id": "q", "query": "tide", "relevant": ["17.md"]}\n')
    plain = opened(root, None)
    plain.run()

    def reached(rerank: dict[str, Any] | None) -> float:
        return min(each.scores["mrr"] for each in opened(root, rerank).evaluate(root / "judged.jsonl"))

    assert (17 * 7) % COUNT == 29, "the one that the function puts first"
    assert reached(function(top=50)) == 1.0 > reached(None)
