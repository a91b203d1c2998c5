"""Servers that follow OpenAI's embeddings API, each in its own way: doubles that answer as their documentation says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from instep.entities.documents.embedders import embedder_of, trial_of
from instep.errors import Transient, UserError
from instep.pipeline.documents.embed.embedder import PROBE
from instep.pipeline.documents.embed.http import HttpEmbedder, close_connections
from instep.pipeline.documents.vectors import Embedded, Vectoriser
from instep.project import OpenAIEmbed
from tests.docs.blocks import blocks
from tests.documents.endpoint import Answer, Endpoint, good, serving, vector

KEY = "a-very-secret-key"
PAGE = (Path(__file__).parents[2] / "docs" / "documents.md").read_text()
DOCUMENTED = blocks(PAGE.partition("## Servers that speak OpenAI's API")[2].partition("\n## ")[0], "yaml")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running
        close_connections()


def declared(url: str, **settings: Any) -> OpenAIEmbed:
    return OpenAIEmbed.model_validate({"type": "openai", "url": url, "model": "m", "dimensions": 3, **settings})


def trial(declaration: OpenAIEmbed, folder: Path) -> None:
    asked = trial_of(declaration, str(folder))
    assert asked is not None
    asked(print)


def refusing(at_fault: Callable[[list[str]], bool], status: int, body: dict[str, Any]) -> Callable[[list[str]], Answer]:
    """Answers `body` where a text is at fault, and vectors otherwise."""
    return lambda texts: (status, {}, body) if at_fault(texts) else good(texts)


def embedded(declaration: OpenAIEmbed, texts: list[str]) -> Embedded:
    """As a wave has them: texts at fault are found."""
    made = embedder_of(declaration)
    return Vectoriser(made).of(pa.array(texts), pa.array(texts))


class TestAzure:
    """https://learn.microsoft.com/azure/ai-services/openai/reference: a deployment's URL, `api-version`, `api-key`."""

    DENIED = "Access denied due to invalid subscription key or wrong API endpoint."

    @pytest.fixture
    def deployment(self, endpoint: Endpoint) -> Endpoint:
        """The classic API: it knows one deployment, one way to send the key, and no request without a version."""

        def answer(texts: list[str]) -> Answer:
            if endpoint.headers[-1].get("api-key") != KEY:
                return 401, {}, {"error": {"code": "401", "message": self.DENIED}}
            if endpoint.paths[-1] != "/openai/deployments/small/embeddings?api-version=2024-10-21":
                return 404, {}, {"error": {"code": "404", "message": "Resource not found"}}
            return good(texts)

        endpoint.behave = answer
        endpoint.url = endpoint.url.replace("/v1", "/openai/deployments/small")
        return endpoint

    def test_a_deployment_gets_its_version_and_the_key_in_its_header(self, deployment: Endpoint) -> None:
        azure = declared(f"{deployment.url}/?api-version=2024-10-21", api_key=KEY, api_key_header="api-key")
        assert embedder_of(azure).embed(["a", "bb"])[:, 0].tolist() == [1, 2]
        assert "Authorization" not in deployment.headers[0]

    @pytest.mark.parametrize(
        ("query", "settings", "said"),
        [
            ("?api-version=2024-10-21", {"api_key": KEY}, DENIED),
            ("?api-version=2024-10-21", {"api_key": f"{KEY}r", "api_key_header": "api-key"}, DENIED),
            ("", {"api_key": KEY, "api_key_header": "api-key"}, "Resource not found"),
        ],
    )
    def test_what_it_refuses_is_one_error_of_the_project(
        self, deployment: Endpoint, tmp_path: Path, query: str, settings: dict[str, str], said: str
    ) -> None:
        with pytest.raises(UserError, match=said) as caught:
            trial(declared(deployment.url + query, **settings), tmp_path)
        assert KEY not in str(caught.value)
        assert len(deployment.asked) == 1

    def test_version_1_of_its_api_takes_the_key_in_either_header(self, endpoint: Endpoint) -> None:
        endpoint.url = endpoint.url.replace("/v1", "/openai/v1")
        embedder_of(declared(endpoint.url, api_key=KEY, api_key_header="api-key")).embed(["a"])
        embedder_of(declared(endpoint.url, api_key=KEY)).embed(["a"])
        assert endpoint.paths == ["/openai/v1/embeddings"] * 2
        assert [each.get("api-key") for each in endpoint.headers] == [KEY, None]
        assert [each.get("Authorization") for each in endpoint.headers] == [None, f"Bearer {KEY}"]

    def test_another_version_or_header_is_the_same_model(self, deployment: Endpoint) -> None:
        one = declared(f"{deployment.url}?api-version=2024-10-21", api_key=KEY, api_key_header="api-key")
        other = declared(f"{deployment.url}?api-version=2025-01-01-preview", api_key=KEY)
        assert embedder_of(one).fingerprint == embedder_of(other).fingerprint


class TestTextEmbeddingsInference:
    """https://github.com/huggingface/text-embeddings-inference, router/src/http/server.rs at 0d124dc: the message
    stands outside of `error`; 32 texts at most; 401 has no body.
    """

    TOO_MANY = "batch size 64 > maximum allowed batch size 32"

    @staticmethod
    def said(status: int, message: str, kind: str) -> Answer:
        return status, {}, {"message": message, "code": status, "type": kind}

    def test_a_batch_that_is_too_large_for_it_is_embedded_in_halves(self, endpoint: Endpoint) -> None:
        endpoint.behave = lambda texts: self.said(422, self.TOO_MANY, "Validation") if len(texts) > 32 else good(texts)
        texts = [f"{number:03}" for number in range(64)]
        found = embedded(declared(endpoint.url), texts)
        assert found.flaws == {}
        assert [len(each) for each in endpoint.asked] == [64, 1, 32, 32]
        endpoint.asked.clear()
        assert embedded(declared(endpoint.url, batch=32), texts).flaws == {}
        assert [len(each) for each in endpoint.asked] == [32, 32], "none is wasted"

    def test_a_text_that_is_too_long_is_alone_at_fault(self, endpoint: Endpoint) -> None:
        message = "Input validation error: `inputs` must have less than 512 tokens. Given: 785"
        _, _, body = self.said(422, message, "Validation")
        endpoint.behave = refusing(lambda texts: "long" in texts, 422, body)
        assert embedded(declared(endpoint.url), ["a", "long", "b"]).flaws == {
            1: f"the embedder refused it (422): {message}"
        }

    def test_it_is_asked_again_when_it_is_overloaded(self, endpoint: Endpoint) -> None:
        endpoint.script = [lambda _: self.said(429, "Model is overloaded", "Overloaded")]
        made = HttpEmbedder(endpoint.url, "m", 3, first_wait=0.01)
        assert made.embed(["a"]).tolist() == [vector("a")]
        endpoint.behave = lambda _: self.said(429, "Model is overloaded", "Overloaded")
        with pytest.raises(Transient, match="it answered 429: Model is overloaded"):
            HttpEmbedder(endpoint.url, "m", 3, first_wait=0.01, attempts=2).embed(["a"])

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ((401, {}, b""), r"refuses to work \(401\)"),
            ((424, {}, {"message": "Backend error: x", "code": 424, "type": "Backend"}), "Backend error: x"),
        ],
    )
    def test_a_wrong_key_or_model_is_one_error_of_the_project(
        self, endpoint: Endpoint, tmp_path: Path, answer: Answer, said: str
    ) -> None:
        endpoint.behave = lambda _: answer
        with pytest.raises(UserError, match=said):
            trial(declared(endpoint.url, api_key=KEY), tmp_path)


class TestVllm:
    """https://docs.vllm.ai/en/latest/models/pooling_models/embed.html; bodies of errors as in its issues 19798 and
    20744, of older versions (flat) and newer ones (within `error`).
    """

    TOO_LONG = (
        "This model's maximum context length is 512 tokens. However, you requested 1451 tokens in the input for "
        "embedding generation. Please reduce the length of the input."
    )
    NO_MATRYOSHKA = 'Model "m" does not support matryoshka representation, changing output dimensions will lead to poor'

    @staticmethod
    def bodies(message: str) -> list[dict[str, Any]]:
        inner = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
        return [{"object": "error", **inner}, {"error": inner}]

    @pytest.mark.parametrize("version", [0, 1])
    def test_a_text_that_is_too_long_is_alone_at_fault(self, endpoint: Endpoint, version: int) -> None:
        endpoint.behave = refusing(lambda texts: "long" in texts, 400, self.bodies(self.TOO_LONG)[version])
        found = embedded(declared(endpoint.url), ["a", "long", "b"])
        assert found.flaws == {1: f"the embedder refused it (400): {self.TOO_LONG}"}

    @pytest.mark.parametrize("version", [0, 1])
    def test_a_model_that_cannot_shorten_is_one_error_of_the_project(
        self, endpoint: Endpoint, tmp_path: Path, version: int
    ) -> None:
        endpoint.behave = refusing(
            lambda _: "dimensions" in endpoint.bodies[-1], 400, self.bodies(self.NO_MATRYOSHKA)[version]
        )
        with pytest.raises(UserError, match=f"the embedder refuses every text: .*{self.NO_MATRYOSHKA}"):
            trial(declared(endpoint.url, shorten=True), tmp_path)
        trial(declared(endpoint.url), tmp_path)

    def test_a_wrong_key_is_one_error_of_the_project(self, endpoint: Endpoint, tmp_path: Path) -> None:
        endpoint.behave = lambda _: (401, {}, {"error": "Unauthorized"})
        with pytest.raises(UserError, match=r"\(401\): Unauthorized"):
            trial(declared(endpoint.url, api_key=KEY), tmp_path)


class TestOllama:
    """https://docs.ollama.com/api/openai-compatibility: no key is needed; `dimensions` and `encoding_format` are taken.
    Of a text that is too long it says 400 or 500 (its issue 14186 and others).
    """

    TOO_LONG = "the input length exceeds the context length"

    @pytest.mark.parametrize(
        ("status", "kind", "said"),
        [
            (400, "invalid_request_error", "the embedder refused it (400): "),
            (500, "api_error", "the embedder refused it: it answered 500: "),
        ],
    )
    def test_a_text_that_is_too_long_is_alone_at_fault(
        self, endpoint: Endpoint, status: int, kind: str, said: str
    ) -> None:
        body = {"error": {"message": self.TOO_LONG, "type": kind, "param": None, "code": None}}
        endpoint.behave = refusing(lambda texts: "long" in texts, status, body)
        made = HttpEmbedder(endpoint.url, "m", 3, first_wait=0.01)
        texts = pa.array(["a", "long", "b"])
        assert Vectoriser(made).of(texts, texts).flaws == {1: said + self.TOO_LONG}

    def test_a_model_that_was_not_pulled_is_one_error_of_the_project(self, endpoint: Endpoint, tmp_path: Path) -> None:
        message = 'model "m" not found, try pulling it first'
        body = {"error": {"message": message, "type": "not_found_error", "param": None, "code": None}}
        endpoint.behave = lambda _: (404, {}, body)
        with pytest.raises(UserError, match=message):
            trial(declared(endpoint.url), tmp_path)

    def test_it_is_asked_without_a_key_and_shortens(self, endpoint: Endpoint) -> None:
        embedder_of(declared(endpoint.url, shorten=True)).embed(["a"])
        assert "Authorization" not in endpoint.headers[0]
        assert endpoint.bodies[0] == {"model": "m", "input": ["a"], "encoding_format": "float", "dimensions": 3}


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: (200, {}, {"error": {"message": "too long"}}),
        lambda texts: good(texts[1:]),
        lambda texts: (200, {}, {"data": [{"index": at, "embedding": []} for at in range(len(texts))]}),
    ],
    ids=["an error in place of vectors", "one vector too few", "an empty vector"],
)
def test_an_answer_of_no_use_for_one_text_is_a_failure_of_that_alone(
    endpoint: Endpoint, answer: Callable[[list[str]], Answer]
) -> None:
    endpoint.behave = lambda texts: answer(texts) if any("odd" in each for each in texts) else good(texts)
    found = embedded(declared(endpoint.url), ["a", "b", "an odd one", "d"])
    assert list(found.flaws) == [2]


def test_an_endpoint_that_says_500_to_every_text_is_away(endpoint: Endpoint) -> None:
    endpoint.behave = lambda _: (500, {}, {"error": {"message": "out of memory"}})
    made = HttpEmbedder(endpoint.url, "m", 3, first_wait=0.01, attempts=4)
    with pytest.raises(Transient, match="it answered 500: out of memory"):
        made.embed(["a", "b"])
    assert endpoint.asked == [["a", "b"]] * 3 + [[PROBE], ["a", "b"], [PROBE]]


def test_one_that_says_500_once_or_twice_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.script = [lambda _: (500, {}, {"error": "busy"})] * 2
    assert HttpEmbedder(endpoint.url, "m", 3, first_wait=0.01).embed(["a"]).tolist() == [vector("a")]
    assert endpoint.asked == [["a"]] * 3


def test_an_outage_that_ends_while_it_is_looked_at_fails_no_text(endpoint: Endpoint) -> None:
    endpoint.script = [lambda _: (500, {}, {"error": "busy"})] * 3
    assert HttpEmbedder(endpoint.url, "m", 3, first_wait=0.01).embed(["a"]).tolist() == [vector("a")]
    assert endpoint.asked == [["a"]] * 3 + [[PROBE], ["a"]]


def test_a_declaration_is_documented_for_each_of_them() -> None:
    made = [OpenAIEmbed.model_validate(yaml.safe_load(each)["embed"]) for each in DOCUMENTED]
    assert [each.api_key_header for each in made] == ["api-key", "api-key", None, None, None, None]
    assert [each.url.rpartition("/")[2].partition("?")[0] for each in made] == [
        "v1",
        "my-small-deployment",
        *["v1"] * 4,
    ]
