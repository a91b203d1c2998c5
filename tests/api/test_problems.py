"""Errors: cause, hint, and no internals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import httpx
import pytest

from instep.api.problems import MEDIA_TYPE
from instep.app import Instep
from instep.errors import Away, Conflict, InstepError, Transient, Unknown, UserError

Raising = Callable[[Exception], None]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Raising:
    """Has the list of workers end in an error."""

    def install(error: Exception) -> None:
        def workers(_self: Instep) -> NoReturn:
            raise error

        monkeypatch.setattr(Instep, "workers", workers)

    return install


def problem(answer: httpx.Response, status: int) -> Any:
    found = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
    assert (found["status"], found["type"]) == (status, "about:blank")
    return found


def test_an_unknown_resource_is_answered_with_404(client: httpx.Client) -> None:
    for path in ("/api/jobs/nothing-like-it", "/api/partitions/Nothing/history", "/api/queues/none", "/api/nowhere"):
        problem(client.get(path), 404)
    assert problem(client.get("/api/why?ref=Nothing&id=x"), 404)["hint"] == "Declared: lance, Document."
    assert "no row of" in problem(client.get("/api/why?ref=Document&id=%00"), 404)["detail"]


def test_an_unsupported_method_is_answered_with_405(client: httpx.Client) -> None:
    problem(client.delete("/api/jobs"), 405)


@pytest.mark.parametrize(
    ("body", "at", "said"),
    [
        ({"batchSize": 0}, "body.batchSize", "greater than or equal to 1"),
        ({"sliceRows": 7}, "body.sliceRows", "greater than or equal to 100"),
        ({"sliceRows": 50_001}, "body.sliceRows", "less than or equal to 50000"),
        ({"consumerThreads": 0}, "body.consumerThreads", "greater than or equal to 1"),
        ({"maxConcurrentRequests": 101}, "body.maxConcurrentRequests", "less than or equal to 100"),
        ({"payLoadSize": "2TB"}, "body.payLoadSize", "100,000 to 104,857,600, or 1MB to 100MB"),
        ({"recreateIndex": "yes"}, "body.recreateIndex", "valid boolean"),
        ({"batchsize": 100}, "body.batchsize", "not permitted"),
    ],
)
def test_an_invalid_request_is_answered_with_the_allowed_values(
    client: httpx.Client, body: dict[str, Any], at: str, said: str
) -> None:
    found = problem(client.post("/api/jobs", json=body), 422)
    assert [each["at"] for each in found["errors"]] == [at]
    assert said in found["detail"]


def test_an_entity_that_is_not_declared_is_answered_with_those_that_are(client: httpx.Client) -> None:
    found = problem(client.post("/api/jobs", json={"entities": ["Ticket"]}), 404)
    assert found["hint"] == "Declared: Document."


def test_a_body_that_is_not_json_is_answered_with_422(client: httpx.Client) -> None:
    problem(client.post("/api/jobs", content=b"{", headers={"content-type": "application/json"}), 422)
    problem(client.post("/api/jobs", content=b'{"\\ud800": 1}', headers={"content-type": "application/json"}), 422)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("no", hint="Do."), 409),
        (Conflict("no"), 409),
        (Transient("no"), 503),
        (Unknown("no"), 503),
        (Away("no", hint="Do."), 503),
    ],
)
def test_our_own_errors(client: httpx.Client, raising: Raising, error: InstepError, status: int) -> None:
    raising(error)
    answer = client.get("/api/workers")
    found = problem(answer, status)
    assert (found["detail"], found["kind"]) == ("no", type(error).__name__)
    assert ("retry-after" in answer.headers) is (status == 503)


def test_secrets_are_hushed(client: httpx.Client, raising: Raising) -> None:
    raising(UserError("cannot reach postgresql://ann:s3cret@db/x", hint="password=s3cret was refused"))
    found = problem(client.get("/api/workers"), 409)
    assert "s3cret" not in str(found)


def test_an_unexpected_error_says_its_kind_only(
    client: httpx.Client, raising: Raising, caplog: pytest.LogCaptureFixture
) -> None:
    raising(RuntimeError("s3cret of another library"))
    found = problem(client.get("/api/workers"), 500)
    assert found["detail"] == "unexpected RuntimeError"
    assert "s3cret" not in caplog.text
    assert "unexpected RuntimeError at GET /api/workers" in caplog.text
