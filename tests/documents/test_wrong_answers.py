"""Answers of embedders and rerankers that no reference allows: each is a clear error or tried again, and bounded."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from instep.errors import Transient, UserError
from instep.pipeline.documents.embed.embedder import EmbedRejected, probe, query_vectors
from instep.pipeline.documents.embed.http import HttpEmbedder, close_connections
from instep.pipeline.documents.embed.protocols import CohereProtocol, OpenAIProtocol, VoyageProtocol
from instep.pipeline.documents.rerank.http import HttpReranker
from tests.doubles.raw_server import answering, endless, whole

PROTOCOLS = [OpenAIProtocol(), CohereProtocol(), VoyageProtocol()]
KEY = "sk-verysecretverysecret"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture(params=PROTOCOLS, ids=lambda each: each.name)
def made(request: pytest.FixtureRequest) -> Callable[..., HttpEmbedder]:
    """Make an embedder that speaks one of the protocols."""

    def make(url: str, attempts: int = 2) -> HttpEmbedder:
        settings = {"api_key": KEY, "attempts": attempts, "first_wait": 0.01, "timeout": 20.0}
        return HttpEmbedder(url, "model", 3, protocol=request.param, **settings)  # type: ignore[arg-type]  # of a test

    return make


def said(embedder: HttpEmbedder, *vectors: Any) -> bytes:
    """An answer with these vectors in the words of the embedder's protocol."""
    if isinstance(embedder.protocol, CohereProtocol):
        return json.dumps({"embeddings": {"float": vectors}}).encode()
    return json.dumps({"data": [{"index": at, "embedding": each} for at, each in enumerate(vectors)]}).encode()


GOOD = [1.0, 2.0, 3.0]


@pytest.mark.parametrize("count", [1, 3])
def test_fewer_or_more_vectors_than_texts_are_tried_again(made: Callable[..., HttpEmbedder], count: int) -> None:
    shape = made("")
    with answering(whole(said(shape, *[GOOD] * count)), whole(said(shape, GOOD, GOOD))) as url:
        assert made(url).embed(["a", "b"]).tolist() == [GOOD, GOOD]
    with (
        answering(whole(said(shape, *[GOOD] * count))) as url,
        pytest.raises(Transient, match=f"{count} vectors for 2 texts"),
    ):
        made(url).embed(["a", "b"])


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'"no"', b'{"data": {}}', b'{"embeddings": [1]}', b"", b"<p>"])
def test_an_answer_without_its_fields_is_tried_again(made: Callable[..., HttpEmbedder], body: bytes) -> None:
    with answering(whole(body), whole(said(made(""), GOOD))) as url:
        assert made(url).embed(["a"]).tolist() == [GOOD]
    with answering(whole(body)) as url, pytest.raises(Transient, match=r"0 vectors for 1 texts|is not JSON"):
        made(url).embed(["a"])


@pytest.mark.parametrize(
    "vector", [["1.0", "2.0", "3.0"], [True, True, True], [1.0, {}, 3.0], {}, "", "not base64", "AAAA", 7, None]
)
def test_what_is_no_vector_of_numbers_is_no_vector(made: Callable[..., HttpEmbedder], vector: object) -> None:
    with answering(whole(said(made(""), vector))) as url, pytest.raises(EmbedRejected, match=r"no vector|not a number"):
        made(url).embed(["a"])


def test_a_vector_in_base64_is_read_where_numbers_were_asked_for(made: Callable[..., HttpEmbedder]) -> None:
    """Some endpoints send what OpenAI's own client asks for, whatever was asked."""
    vector = base64.b64encode(struct.pack("<3f", *GOOD)).decode()
    with answering(whole(said(made(""), vector))) as url:
        assert made(url).embed(["a"]).tolist() == [GOOD]
    longer = base64.b64encode(struct.pack("<4f", *GOOD, 4.0)).decode()
    with answering(whole(said(made(""), longer))) as url, pytest.raises(UserError, match="4 dimensions"):
        made(url).embed(["a"])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300, None])
def test_a_vector_that_is_not_finite_is_no_answer_to_a_probe_or_a_query(
    made: Callable[..., HttpEmbedder], number: float | None
) -> None:
    with answering(whole(said(made(""), [1.0, number, 3.0]))) as url:
        with pytest.raises(UserError, match="the embedder cannot be used: the vector has"):
            probe(made(url))
        with pytest.raises(UserError, match="no vector of the query 'tide': it has"):
            query_vectors(made(url), ["tide"])


def test_a_query_that_is_refused_is_the_users_error(made: Callable[..., HttpEmbedder]) -> None:
    with answering(whole(said(made(""), "x"))) as url, pytest.raises(UserError, match="cannot be embedded") as caught:
        query_vectors(made(url), ["tide"])
    assert "--mode text" in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        (OpenAIProtocol(), {"error": {"message": f"model overloaded {KEY}", "code": 529}}),
        (OpenAIProtocol(), {"error": f"model overloaded {KEY}"}),
        (CohereProtocol(), {"message": f"model overloaded {KEY}"}),
        (VoyageProtocol(), {"detail": f"model overloaded {KEY}"}),
    ],
)
def test_an_error_that_comes_as_a_success_is_said(protocol: Any, body: dict[str, Any]) -> None:
    with (
        answering(whole(json.dumps(body).encode())) as url,
        pytest.raises(Transient, match="model overloaded") as caught,
    ):
        HttpEmbedder(url, "m", 3, protocol=protocol, api_key=KEY, attempts=2, first_wait=0.01).embed(["a"])
    assert KEY not in str(caught.value)


def test_an_answer_that_is_cut_off_in_its_middle_is_tried_again(made: Callable[..., HttpEmbedder]) -> None:
    body = said(made(""), GOOD)
    cut = whole(body[:20], length=len(body))
    with answering(cut, whole(body)) as url:
        assert made(url).embed(["a"]).tolist() == [GOOD]
    with answering(cut) as url, pytest.raises(Transient, match="out of reach: RemoteProtocolError"):
        made(url).embed(["a"])


def bomb() -> bytes:
    """A hundred megabytes in a hundred kilobytes."""
    return gzip.compress(b" " * 100_000_000)


def test_an_answer_without_an_end_is_not_read_to_it(made: Callable[..., HttpEmbedder]) -> None:
    with answering(endless(b" " * 65_536)) as url, pytest.raises(Transient, match=r"more than 1,\d{3},\d{3} bytes"):
        made(url, attempts=1).embed(["a"])


def test_an_answer_that_unpacks_to_much_more_is_not_unpacked(made: Callable[..., HttpEmbedder]) -> None:
    packed = whole(bomb(), "Content-Encoding: gzip")
    with answering(packed) as url, pytest.raises(Transient, match=r"more than 1,\d{3},\d{3} bytes"):
        made(url, attempts=1).embed(["a"])
    small = gzip.compress(said(made(""), GOOD))
    with answering(whole(small, "Content-Encoding: gzip")) as url:
        assert made(url).embed(["a"]).tolist() == [GOOD]


def test_an_answer_may_be_as_large_as_its_vectors_and_texts() -> None:
    """3,072 numbers of 20 letters each for 64 texts, which the answer repeats in escaped letters."""
    texts = ["ü" * 10_000] * 64
    answer = {"embeddings": {"float": [[-0.12345678901234567] * 3_072] * 64}, "texts": texts}
    with answering(whole(json.dumps(answer).encode())) as url:
        embedder = HttpEmbedder(url, "m", 3_072, protocol=CohereProtocol(), batch=64, attempts=1)
        assert embedder.embed(texts).shape == (64, 3_072)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda: whole(b'{"error": "model overloaded"}'), UserError, "no score for each text"),
        (lambda: whole(b'{"results": {"0": 1}}'), UserError, "no score for each text"),
        (lambda: whole(b""), UserError, "no score for each text"),
        (lambda: whole(b'[{"index": 0, "score": "0.5"}, {"index": 1, "score": 1}]'), UserError, "other than a number"),
        (lambda: whole(b'[{"index": 0, "score": null}, {"index": 1, "score": 1}]'), UserError, "other than a number"),
        (lambda: whole(b'[{"index": 0, "score": 1e999}, {"index": 1, "score": 1}]'), UserError, "are not numbers"),
        (lambda: whole(b'[{"index": 0, "score": 1}]', length=90), Transient, "out of reach: RemoteProtocolError"),
        (lambda: endless(b" " * 65_536), Transient, "more than 32,000,000 bytes"),
        (lambda: whole(bomb(), "Content-Encoding: gzip"), Transient, "more than 32,000,000 bytes"),
    ],
)
def test_a_reranker_that_gives_something_else_than_scores(answer: Any, error: Any, message: str) -> None:
    with answering(answer()) as url, pytest.raises(error, match=message):
        HttpReranker(url, protocol="tei", timeout=20.0).scores("tide", ["a", "b"])
