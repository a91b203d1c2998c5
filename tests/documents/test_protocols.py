"""Cohere's and Voyage's own protocols, against a real server that speaks them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from instep.entities.documents.embedders import embedder_of, trial_of
from instep.errors import Transient, UserError
from instep.pipeline.documents.embed.embedder import Embedder, EmbedRejected
from instep.pipeline.documents.embed.http import HttpEmbedder, close_connections
from instep.pipeline.documents.embed.protocols import (
    CohereProtocol,
    EmbeddingProtocol,
    OpenAIProtocol,
    VoyageProtocol,
    requests,
)
from instep.project import CohereEmbed, VoyageEmbed
from tests.documents.endpoint import Answer, Endpoint, good, serving, vector

KEY = "a-very-secret-key"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running
        close_connections()


def cohere_answer(texts: list[str]) -> Answer:
    made = {"id": "1", "embeddings": {"float": [vector(each) for each in texts]}, "texts": texts}
    return 200, {}, {**made, "meta": {"billed_units": {"input_tokens": 3}}}


def cohere(endpoint: Endpoint, *, queries: bool = False, **settings: object) -> Embedder:
    declared = CohereEmbed.model_validate(
        {"type": "cohere", "url": endpoint.url, "model": "embed-v4.0", "dimensions": 3, **settings}
    )
    return embedder_of(declared, queries=queries)


def voyage(endpoint: Endpoint, *, queries: bool = False, **settings: object) -> Embedder:
    declared = VoyageEmbed.model_validate(
        {"type": "voyage", "url": endpoint.url, "model": "voyage-4", "dimensions": 3, **settings}
    )
    return embedder_of(declared, queries=queries)


def test_cohere_is_asked_and_read_in_its_own_words(endpoint: Endpoint) -> None:
    endpoint.behave = cohere_answer
    made = cohere(endpoint, api_key=SecretStr(KEY), shorten=True)
    assert made.embed(["a", "bb"])[:, 0].tolist() == [1, 2]
    assert endpoint.paths == ["/v1/embed"]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert endpoint.bodies[0] == {
        "model": "embed-v4.0",
        "texts": ["a", "bb"],
        "input_type": "search_document",
        "embedding_types": ["float"],
        "truncate": "NONE",
        "output_dimension": 3,
    }
    cohere(endpoint, queries=True).embed(["a"])
    assert endpoint.bodies[1]["input_type"] == "search_query"
    assert "output_dimension" not in endpoint.bodies[1]


def test_voyage_is_asked_and_read_in_its_own_words(endpoint: Endpoint) -> None:
    made = voyage(endpoint, shorten=True)
    assert made.embed(["a", "bb"])[:, 0].tolist() == [1, 2]
    assert endpoint.paths == ["/v1/embeddings"]
    assert endpoint.bodies[0] == {
        "model": "voyage-4",
        "input": ["a", "bb"],
        "input_type": "document",
        "truncation": False,
        "output_dimension": 3,
    }
    voyage(endpoint, queries=True).embed(["a"])
    assert endpoint.bodies[1]["input_type"] == "query"


def test_no_request_is_larger_than_the_api_takes(endpoint: Endpoint) -> None:
    endpoint.behave = cohere_answer
    assert len(cohere(endpoint).embed(["a"] * 200)) == 200
    assert [len(each) for each in endpoint.asked] == [96, 96, 8]
    # So does an embedder that was made with a larger batch.
    assert [len(each) for each in requests(CohereProtocol(), ["a"] * 100, 2_000)] == [96, 4]
    assert [len(each) for each in requests(VoyageProtocol(), ["a"] * 1_500, 2_000)] == [1_000, 500]
    assert [len(each) for each in requests(OpenAIProtocol(), ["a" * 1_000_000] * 3, 2)] == [2, 1]


def test_a_request_to_voyage_has_no_more_bytes_than_it_takes_tokens() -> None:
    texts = ["é" * 30_000, "a" * 60_000, "b", "c" * 200_000, "d"]  # 60,000 bytes, twice; one that is too long alone.
    assert [list(each) for each in requests(VoyageProtocol(), texts, 1_000)] == [texts[:2], ["b"], texts[3:4], ["d"]]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [(cohere, {"id": "1", "message": "too many tokens"}), (voyage, {"detail": "too many tokens"})],
)
def test_a_refusal_says_why_and_an_outage_is_tried_again(
    endpoint: Endpoint, make: type, complaint: dict[str, str]
) -> None:
    made = make(endpoint, api_key=SecretStr(KEY))
    endpoint.behave = lambda _: (400, {}, complaint)
    with pytest.raises(EmbedRejected, match="too many tokens"):
        made.embed(["a"])
    endpoint.behave = lambda _: (401, {}, dict.fromkeys(complaint, f"invalid api token {KEY}"))
    with pytest.raises(UserError, match="invalid api token") as caught:
        made.embed(["a"])
    assert KEY not in str(caught.value)
    endpoint.script = [lambda _: (429, {"retry-after": "0.4"}, complaint)]
    endpoint.behave = cohere_answer if make is cohere else good
    assert len(made.embed(["a"])) == 1
    assert endpoint.times[-1] - endpoint.times[-2] >= 0.4


@pytest.mark.parametrize(
    ("protocol", "answer", "billed"),
    [
        (OpenAIProtocol(), {"usage": {"prompt_tokens": 7, "total_tokens": 9}}, 9),
        (OpenAIProtocol(), {"usage": {"prompt_tokens": 7}}, 7),
        (CohereProtocol(), {"meta": {"billed_units": {"input_tokens": 7}}, "usage": {"total_tokens": 9}}, 7),
        (VoyageProtocol(), {"usage": {"total_tokens": 7}}, 7),
        (VoyageProtocol(), {"usage": {"total_tokens": 0}}, 0),
        (CohereProtocol(), {"meta": {"billed_units": {"input_tokens": 7.0}}}, 7),
        (CohereProtocol(), {"meta": {"billed_units": {"input_tokens": 6.5}}}, 7),
        (CohereProtocol(), {"meta": {"billed_units": {"input_tokens": float("nan")}}}, None),
        (CohereProtocol(), {"meta": {"billed_units": {"input_tokens": float("inf")}}}, None),
        (OpenAIProtocol(), {"meta": {"billed_units": {"input_tokens": 7}}}, None),
        (CohereProtocol(), {"meta": {"billed_units": {"input_tokens": True}}}, None),
        (CohereProtocol(), {"meta": {"billed_units": None}}, None),
        (VoyageProtocol(), {"usage": {"total_tokens": "7"}}, None),
        (VoyageProtocol(), {"usage": {"total_tokens": -1}}, None),
        (VoyageProtocol(), ["usage"], None),
    ],
)
def test_each_protocol_reads_where_its_answers_say_what_is_billed(
    protocol: EmbeddingProtocol, answer: object, billed: int | None
) -> None:
    assert protocol.billed_tokens(answer) == billed


def test_an_answer_without_vectors_is_an_outage(endpoint: Endpoint) -> None:
    endpoint.behave = lambda _: (200, {}, {"embeddings": [[1.0, 2.0, 3.0]]})  # As version 1 answers.
    with pytest.raises(Transient, match="0 vectors for 1 texts"):
        HttpEmbedder(endpoint.url, "m", 3, attempts=1, protocol=CohereProtocol()).embed(["a"])


def test_the_probe_asks_in_the_same_words(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.behave = lambda _: (401, {}, {"message": "invalid api token"})
    declared = CohereEmbed(type="cohere", url=endpoint.url, model="embed-v4.0", dimensions=3)
    trial = trial_of(declared, str(tmp_path))
    assert trial is not None
    with pytest.raises(UserError, match="invalid api token"):
        trial(print)
    assert [body["input_type"] for body in endpoint.bodies] == ["search_document"]


def test_fingerprints_name_protocol_model_dimensions_and_kind(endpoint: Endpoint) -> None:
    alike = {"url": endpoint.url, "model": "m", "dimensions": 3}
    made = [
        HttpEmbedder(**alike, protocol=each)  # type: ignore[arg-type]  # settings of a test
        for each in (OpenAIProtocol(), CohereProtocol(), CohereProtocol("search_query"), VoyageProtocol())
    ]
    assert len({each.fingerprint for each in made}) == 4
    assert all(pickle.loads(pickle.dumps(each)) == each for each in made)
    assert HttpEmbedder("http://a/v1", "m", 3).fingerprint == "fbabe14f53323e1d", "what is built stays as it is"
    assert HttpEmbedder("http://a/v1", "m", 3, prompt="p").fingerprint == "e141e56c43a125c6"
    assert cohere(endpoint).fingerprint != cohere(endpoint, dimensions=4).fingerprint
    assert cohere(endpoint).fingerprint == cohere(endpoint, requests_at_once=3).fingerprint
