"""The HTTP embedder against a real server that misbehaves as real ones do."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest

from instep.domain.money import Bill
from instep.errors import Overdrawn, Transient, UserError
from instep.pipeline.documents.embed.embedder import EmbedRejected
from instep.pipeline.documents.embed.http import HttpEmbedder, close_connections
from instep.pipeline.documents.embed.meter import Meter, most_tokens
from instep.pipeline.documents.embed.protocols import CohereProtocol, VoyageProtocol
from tests.documents.endpoint import Answer, Endpoint, good, serving, vector
from tests.doubles.raw_server import Drops, answering
from tests.waiting import until

KEY = "sk-verysecretverysecret"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running
        close_connections()


def embedder(endpoint: Endpoint, **settings: object) -> HttpEmbedder:
    values = {"dimensions": 3, "api_key": KEY, "batch": 2, "first_wait": 0.01, "attempts": 3, **settings}
    return HttpEmbedder(endpoint.url, "model", **values)  # type: ignore[arg-type]  # settings of a test


def refuse(status: int, message: str = "no", **headers: str) -> Answer:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, {"error": {"message": message}}


def test_asks_in_batches_and_keeps_the_order(endpoint: Endpoint) -> None:
    made = embedder(endpoint).embed(["a", "bb", "ccc", "dddd", "eeeee"])
    assert made[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert endpoint.asked == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert embedder(endpoint).embed([]).shape == (0, 3)


def test_prompts_stand_before_each_text_and_dimensions_are_sent_where_that_is_asked_for(endpoint: Endpoint) -> None:
    made = embedder(endpoint, prompt="passage: ", shorten=True)
    assert made.embed(["a", "bb"])[:, 0].tolist() == [len("passage: a"), len("passage: bb")]
    assert endpoint.asked == [["passage: a", "passage: bb"]]
    assert endpoint.bodies[0]["dimensions"] == 3
    embedder(endpoint).embed(["a"])
    assert "dimensions" not in endpoint.bodies[1]
    assert made.fingerprint != embedder(endpoint).fingerprint
    assert embedder(endpoint, shorten=True).fingerprint == embedder(endpoint).fingerprint, "the vectors are the same"


def test_an_answer_in_another_order_is_put_right_by_index(endpoint: Endpoint) -> None:
    def reversed_answer(texts: list[str]) -> Answer:
        status, headers, answer = good(texts)
        return status, headers, {"data": answer["data"][::-1]}

    endpoint.behave = reversed_answer
    assert embedder(endpoint).embed(["a", "bb"])[:, 0].tolist() == [1, 2]


def test_too_many_requests_waits_as_long_as_the_server_says(endpoint: Endpoint) -> None:
    endpoint.script = [lambda _: refuse(429, retry_after="0.4")]
    assert embedder(endpoint).embed(["a"]).tolist() == [vector("a")]
    assert endpoint.times[1] - endpoint.times[0] >= 0.4


def test_a_date_to_wait_until_is_understood(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.pipeline.documents.embed.http._LONGEST_WAIT", 0.01)  # So long for the last one.
    endpoint.script = [
        lambda _: refuse(429, retry_after=formatdate(0, usegmt=True)),
        lambda _: refuse(429, retry_after="soon"),
        lambda _: refuse(429, retry_after="nan"),
        lambda _: refuse(429, retry_after="Fri, 31 Dec 9999 23:59:59 -2359"),
    ]
    assert embedder(endpoint, attempts=5).embed(["a"]).tolist() == [vector("a")]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_outage_is_retried_and_then_transient(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [lambda _: refuse(status)]
    assert embedder(endpoint).embed(["a"]).tolist() == [vector("a")]
    endpoint.behave = lambda _: refuse(status)
    with pytest.raises(Transient, match=f"it answered {status}: no"):
        embedder(endpoint).embed(["a"])
    assert endpoint.asked.count(["a"]) == 2 + 3


def test_answers_that_are_incomplete_or_garbled_are_retried(endpoint: Endpoint) -> None:
    endpoint.script = [
        lambda texts: (200, {}, {"data": good(texts)[2]["data"][:1]}),
        lambda texts: (200, {}, {"data": [{"index": 0, "embedding": vector("a")}] * 2}),
        lambda texts: (200, {}, b"<html>busy</html>"),
        lambda texts: (200, {}, {"data": None}),
        lambda texts: (200, {"content-encoding": "gzip"}, b"cut off"),
        lambda texts: (200, {}, b"[" * 100_000),
    ]
    assert embedder(endpoint, attempts=7).embed(["a", "bb"])[:, 0].tolist() == [1, 2]


def test_an_embedder_that_does_not_listen_is_transient() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, without a listener
        port = free.getsockname()[1]
        silent = HttpEmbedder(f"http://127.0.0.1:{port}", "m", 3, api_key=KEY, attempts=2, first_wait=0.01)
        with pytest.raises(Transient) as caught:
            silent.embed(["a"])
    assert KEY not in str(caught.value)
    close_connections()


def test_a_missing_answer_is_an_outage_and_not_retried(endpoint: Endpoint) -> None:
    """Six times a minute of silence would be six minutes without a message."""
    over = threading.Event()

    def silent(texts: list[str]) -> Answer:
        over.wait(60)
        return good(texts)

    endpoint.behave = silent
    with pytest.raises(Transient, match="no whole answer within"):
        embedder(endpoint, timeout=0.3, attempts=6).embed(["a"])
    # The endpoint may read it only now.
    until(lambda: endpoint.asked != [])
    over.set()
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("head", [True, False])
def test_an_answer_that_drips_for_ever_is_an_outage(head: bool) -> None:
    with answering(Drops(head=head)) as url, pytest.raises(Transient, match="no whole answer within"):
        HttpEmbedder(url, "model", dimensions=3, timeout=0.3, attempts=2, first_wait=0.01).embed(["a"])
    close_connections()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_of_the_texts_is_not_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.behave = lambda _: refuse(status, f"too long; your key {KEY}")
    with pytest.raises(EmbedRejected, match="too long") as caught:
        embedder(endpoint).embed(["a"])
    assert KEY not in str(caught.value)
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("status", [301, 308, 401, 403, 404])
def test_a_wrong_key_or_address_is_the_users_error(endpoint: Endpoint, status: int) -> None:
    endpoint.behave = lambda _: refuse(status, f"Incorrect API key provided: {KEY}")
    with pytest.raises(UserError, match="api_key") as caught:
        embedder(endpoint).embed(["a"])
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("length", [0, 2, 4, 3072])
def test_vectors_of_another_length_are_the_users_error(endpoint: Endpoint, length: int) -> None:
    """No text would get another one: each try costs as much as the first."""
    endpoint.behave = lambda texts: (200, {}, {"data": [{"embedding": [1.0] * length} for _ in texts]})
    with pytest.raises(UserError, match=f"{length:,} dimensions; the project says 3") as caught:
        embedder(endpoint, batch=64).embed(["a"] * 200)
    assert "dimensions" in (caught.value.hint or "")
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("embedding", ["text", None, [1.0, "x", 2.0], [1.0, [2.0], 3.0], [[1.0]] * 3, [10**400] * 3])
def test_a_vector_of_the_wrong_shape_is_rejected(endpoint: Endpoint, embedding: object) -> None:
    endpoint.behave = lambda _: (200, {}, {"data": [{"index": 0, "embedding": embedding}]})
    with pytest.raises(EmbedRejected):
        embedder(endpoint).embed(["a"])


def test_requests_are_spaced_by_the_limit(endpoint: Endpoint) -> None:
    began = time.monotonic()  # by our clock: at the endpoint a slow connection brings requests nearer to each other
    embedder(endpoint, batch=1, requests_per_minute=600).embed(["a", "b", "c"])
    assert time.monotonic() - began >= 0.2


def test_a_batch_beyond_the_limits_of_a_protocol_is_kept_request_by_request() -> None:
    """Cohere takes 96 texts, Voyage 120,000 bytes."""
    cohere = HttpEmbedder("http://127.0.0.1:1", "model", 3, protocol=CohereProtocol(), batch=256)
    assert list(cohere.portions(["a"] * 200)) == [96, 96, 8]
    voyage = HttpEmbedder("http://127.0.0.1:1", "model", 3, protocol=VoyageProtocol(), batch=256)
    assert list(voyage.portions(["b" * 50_000] * 5)) == [2, 2, 1]


def test_the_key_is_not_shown_and_travels(endpoint: Endpoint) -> None:
    made = embedder(endpoint)
    assert KEY not in repr(made)
    copy = pickle.loads(pickle.dumps(made))
    copy.embed(["a"])
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert made.fingerprint == embedder(endpoint, api_key="other").fingerprint
    assert made.fingerprint != embedder(endpoint, dimensions=4).fingerprint


def test_a_key_that_looks_like_any_word_is_in_no_error(endpoint: Endpoint) -> None:
    endpoint.behave = lambda _: refuse(401, "who is harbour-maple? harbour-maple is unknown")
    with pytest.raises(UserError) as caught:
        embedder(endpoint, api_key="harbour-maple").embed(["a"])
    assert "who is ***? *** is unknown" in str(caught.value)


@pytest.mark.parametrize("key", ["sk-from-a-file\n", "sk-é"])
def test_a_key_that_cannot_be_sent_is_the_users_error(endpoint: Endpoint, key: str) -> None:
    with pytest.raises(UserError, match="`api_key`") as caught:
        embedder(endpoint, api_key=key).embed(["a"])
    assert "sk-" not in str(caught.value)
    assert not endpoint.asked


@pytest.mark.parametrize("url", ["localhost:8080/v1", "https//example.org", "http://[::1/v1"])
def test_an_address_that_is_none_is_the_users_error(url: str) -> None:
    with pytest.raises(UserError, match="`url`"):
        HttpEmbedder(url, "model", 3).embed(["a"])
    close_connections()


FORKING = """
import os, sys
from instep.pipeline.documents.embed import http
embedder = http.HttpEmbedder(sys.argv[1], "model", 3, attempts=1)
embedder.embed(["parent"])
with http._LOCK:  # Another thread may hold it just then.
    child = os.fork()
    if not child:
        embedder.embed(["child"])
        os._exit(0)
done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
embedder.embed(["parent"])
sys.exit(done)
"""


def test_a_forked_process_opens_a_connection_of_its_own(endpoint: Endpoint) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, endpoint.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert endpoint.asked == [["parent"], ["child"], ["parent"]]
    parent, child, again = endpoint.peers
    assert parent == again != child


def answered(usage: object) -> Callable[[list[str]], Answer]:
    def answer(texts: list[str]) -> Answer:
        status, headers, body = good(texts)
        return status, headers, body | {"usage": usage}

    return answer


@pytest.mark.parametrize(
    ("usage", "bill"),
    [
        ({"prompt_tokens": 3, "total_tokens": 3}, Bill(2, 3, 0)),
        ({"prompt_tokens": 4}, Bill(2, 4, 0)),
        ({"total_tokens": 0}, Bill(2, 0, 0)),
        ({"total_tokens": "many"}, Bill(2, 0, most_tokens(["a", "ü"]))),
        ({"total_tokens": -1}, Bill(2, 0, most_tokens(["a", "ü"]))),
        (None, Bill(2, 0, most_tokens(["a", "ü"]))),
    ],
)
def test_an_answer_is_billed_as_it_says_or_as_the_most_it_can_have_cost(
    endpoint: Endpoint, usage: object, bill: Bill
) -> None:
    endpoint.behave = answered(usage)
    meter = Meter()
    embedder(endpoint).metered(meter).embed(["a", "ü"])
    assert meter.bill == bill


def test_a_refusal_costs_nothing_and_a_silence_may_cost_all(endpoint: Endpoint) -> None:
    meter = Meter()
    for answer in (refuse(400), refuse(401), refuse(503, retry_after="0")):
        endpoint.behave = lambda _, said=answer: said  # type: ignore[misc]  # of this turn
        with pytest.raises((EmbedRejected, UserError, Transient)):
            embedder(endpoint).metered(meter).embed(["a"])
    assert meter.bill == Bill()
    endpoint.behave = lambda _: (200, {}, b"no JSON")
    with pytest.raises(Transient):
        embedder(endpoint).metered(meter).embed(["a"])
    assert meter.bill == Bill(0, 0, 3 * most_tokens(["a"])), "each try"


def test_a_request_that_may_cost_more_than_is_left_is_not_sent(endpoint: Endpoint) -> None:
    endpoint.behave = answered({"total_tokens": 2})
    meter = Meter(allowed=2 + most_tokens(["bb"]))
    paid = embedder(endpoint, batch=1).metered(meter)
    paid.embed(["aa", "bb"])
    with pytest.raises(Overdrawn):
        paid.embed(["cc"])
    assert (endpoint.asked, meter.bill.tokens) == ([["aa"], ["bb"]], 4)


def test_a_copy_of_a_meter_has_its_share_and_a_bill_of_its_own() -> None:
    meter = Meter(allowed=100, shares=3)
    copy = pickle.loads(pickle.dumps(meter))
    assert (meter.travelled, copy.travelled) == (True, False)
    with copy.request(["x" * (33 - most_tokens([""]))]):
        pass
    with pytest.raises(Overdrawn), copy.request(["y"]):
        pytest.fail("its share was used up")
    assert meter.bill == Bill()
