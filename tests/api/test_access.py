"""Who may ask what: the token, the names that the server answers to, other sites' pages, and bounded bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from instep.api.application import create_app
from instep.api.middleware import MAX_BODY, Access, Asked
from instep.api.problems import MEDIA_TYPE
from instep.app import Instep
from tests.api.conftest import TIMEOUT_SECONDS, TOKEN, bearer, served

HOST = "127.0.0.1:8321"


def refused(
    access: Access,
    method: str = "GET",
    path: str = "/api/jobs",
    *,
    host: str | None = HOST,
    origin: str | None = None,
    token: str | None = None,
    offered: tuple[str, ...] = (),
) -> int | None:
    authorization = None if token is None else f"Bearer {token}"
    refusal = access.refusal(Asked(method, path, host, origin, authorization, offered))
    return refusal.status if refusal else None


HERE, ELSEWHERE = Access(TOKEN, loopback=True), Access(TOKEN, loopback=False)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "ANYTHING"])
def test_every_changing_request_needs_the_token(method: str) -> None:
    for access in (HERE, ELSEWHERE):
        for wrong in (None, "", TOKEN[:-1], f"{TOKEN}x", "täken"):
            assert refused(access, method, token=wrong) == 401
        assert refused(access, method, token=TOKEN) is None


@pytest.mark.parametrize("path", ["/api", "/api/jobs", "/api/openapi.json", "/ws", "/metrics"])
def test_reads_need_it_unless_only_this_machine_asks(path: str) -> None:
    assert refused(HERE, path=path) is None
    assert refused(ELSEWHERE, path=path) == 401
    assert refused(ELSEWHERE, path=path, token=TOKEN) is None


def test_a_web_socket_has_it_as_a_subprotocol() -> None:
    assert refused(ELSEWHERE, path="/ws", offered=("instep", f"instep.token.{TOKEN}")) is None
    assert refused(ELSEWHERE, path="/ws", offered=("instep", TOKEN)) == 401


def test_the_files_of_the_page_need_no_token() -> None:
    assert refused(ELSEWHERE, path="/") is None
    assert refused(ELSEWHERE, path="/js/main.js") is None
    assert refused(ELSEWHERE, "POST", path="/") == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "[::2]:1", "192.0.2.1"]
)
def test_a_name_that_was_pointed_at_this_machine_is_not_answered_to(host: str) -> None:
    assert refused(HERE, host=host, token=TOKEN) == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "LocalHost:8321", "[::1]:8321"])
def test_names_of_this_machine_are(host: str) -> None:
    assert refused(HERE, host=host) is None


@pytest.mark.parametrize("host", [None, "", "[::1", ":80"])
def test_without_a_host_there_is_no_answer(host: str | None) -> None:
    assert refused(HERE, host=host) == refused(ELSEWHERE, host=host, token=TOKEN) == 400


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://127.0.0.1:9999", "http://localhost:8321"]
)
def test_pages_of_other_sites_may_not_ask(origin: str) -> None:
    assert refused(HERE, path="/ws", origin=origin) == 403
    assert refused(HERE, "POST", origin=origin, token=TOKEN) == 403


def test_our_own_page_may() -> None:
    assert refused(HERE, origin=f"http://{HOST}") is None
    assert refused(ELSEWHERE, host="Data.example", origin="https://data.example", token=TOKEN) is None


def test_the_token_is_in_no_text_of_it() -> None:
    assert TOKEN not in repr(HERE)


@pytest.fixture
def elsewhere(instep: Instep) -> Iterator[httpx.Client]:
    """Bound to an address that others reach."""
    with (
        served(create_app(instep, token=TOKEN, loopback=False)) as address,
        httpx.Client(base_url=address, timeout=TIMEOUT_SECONDS) as found,
    ):
        yield found


def test_a_server_that_others_reach(elsewhere: httpx.Client) -> None:
    answer = elsewhere.get("/api/project")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert elsewhere.get("/api/project", headers=bearer()).status_code == 200
    assert elsewhere.get("/api/openapi.json").status_code == 401


def test_headers_of_every_answer(client: httpx.Client) -> None:
    for path in ("/api/project", "/api/nothing", "/"):
        headers = client.get(path).headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]
        assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")


def test_other_sites_are_not_let_in_by_a_preflight(client: httpx.Client) -> None:
    asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    assert client.options("/api/jobs", headers=asks).status_code == 403


def test_a_body_is_bounded_whether_it_says_its_length_or_not(client: httpx.Client) -> None:
    large = json.dumps({"entities": ["x" * MAX_BODY]}).encode()
    assert client.post("/api/jobs", content=large).status_code == 413
    answer = client.post("/api/jobs", content=iter([large[:MAX_BODY], large[MAX_BODY:]]))
    assert (answer.status_code, answer.headers["content-type"]) == (413, MEDIA_TYPE)
    assert client.get("/api/project").status_code == 200


def test_python_beside_the_page_is_not_served(client: httpx.Client) -> None:
    assert client.get("/").status_code == 200
    assert client.get("/__init__.py").status_code == 404
    assert client.get("/../__init__.py").status_code == 404
