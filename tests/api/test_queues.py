"""Consumers of a queue over HTTP: lease keys, acknowledge them, report failures."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from instep.api.application import create_app
from instep.app import Instep, load
from tests.api.conftest import TIMEOUT_SECONDS, TOKEN, bearer, served

PROJECT = """\
name: salts
queues:
  salts:
    on: sqlite:///salts.db
    key: k
    keys: {keys}
    source: {{table: source}}
    covered_by: [{{table: cover}}]
"""


def holding(folder: Path, several: Iterable[int | str], keys: str) -> Instep:
    """A project whose queue has these keys, and takes those that are declared by `keys`."""
    kind = "TEXT" if keys == "text" else "INTEGER"
    with closing(sqlite3.connect(folder / "salts.db")) as database:
        database.executescript(f"CREATE TABLE source (k {kind} PRIMARY KEY); CREATE TABLE cover (k {kind} PRIMARY KEY)")
        database.executemany("INSERT INTO source VALUES (?)", [(key,) for key in several])
        database.commit()
    (folder / "instep.yaml").write_text(PROJECT.format(keys=keys))
    found = load(folder)
    with found.queue("salts") as queue:
        queue.create()
        queue.backfill()
        assert queue.verify().verdict.equal
        queue.switch()
    return found


@contextmanager
def client_of(project: Instep) -> Iterator[httpx.Client]:
    with (
        served(create_app(project, token=TOKEN, loopback=True)) as address,
        httpx.Client(base_url=f"{address}/api/queues", headers=bearer(), timeout=TIMEOUT_SECONDS) as found,
    ):
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Instep:
    """Its queue holds the keys 1 to 20."""
    return holding(tmp_path, range(1, 21), "{from: 0, below: 1000}")


@pytest.fixture
def http(project: Instep) -> Iterator[httpx.Client]:
    with client_of(project) as found:
        yield found


def leased(http: httpx.Client, limit: int, by: str = "first") -> dict[int, int]:
    """The fence of each key that is leased for an hour."""
    answer = http.post("/salts/next", json={"limit": limit, "lease": 3_600_000, "by": by})
    assert answer.status_code == 200, answer.text
    return {each["key"]: each["fence"] for each in answer.json()["items"]}


def keys(fences: dict[int, int]) -> list[dict[str, int]]:
    return [{"key": key, "fence": fence} for key, fence in fences.items()]


def test_consumers_are_given_different_keys_and_what_is_acknowledged_is_given_to_none(http: httpx.Client) -> None:
    one, other = leased(http, 8), leased(http, 20, "second")
    assert len(one) == 8
    assert sorted([*one, *other]) == list(range(1, 21))
    done = http.post("/salts/ack", json={"keys": keys(one)})
    assert {each["key"]: each["effect"] for each in done.json()["items"]} == dict.fromkeys(one, "acked")
    assert leased(http, 20) == {}
    status = http.get("/salts").json()
    assert status["leased"]["keys"] == len(other)
    assert status["offered"] == len(other)


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_the_oldest_key_is_told_in_whatever_order_keys_are_read(tmp_path: Path, order: str) -> None:
    with holding(tmp_path, range(1, 21), f"integer\n    order: {order}").queue("salts") as queue:
        assert queue.status().oldest_key == 1


def test_a_failed_key_waits_for_its_next_try_with_its_error(http: httpx.Client, project: Instep) -> None:
    [(key, fence)] = leased(http, 1).items()
    [outcome] = http.post("/salts/fail", json={"keys": [{"key": key, "fence": fence, "error": "HTTP 500"}]}).json()[
        "items"
    ]
    assert (outcome["effect"], outcome["attempts"]) == ("failed", 1)
    assert outcome["due"] > 0
    assert key not in leased(http, 20)
    with project.queue("salts") as queue:
        assert queue.status().retrying.keys == 1


def test_a_fence_that_is_not_that_of_the_lease_is_refused_and_stops_no_other_key(http: httpx.Client) -> None:
    (first, fence), (second, right) = leased(http, 2).items()
    answer = http.post(
        "/salts/ack", json={"keys": [{"key": first, "fence": fence - 1}, {"key": second, "fence": right}]}
    )
    assert answer.status_code == 200
    refused, done = answer.json()["items"]
    assert (refused["key"], refused["effect"]) == (first, "refused")
    assert refused["why"]
    assert (done["key"], done["effect"]) == (second, "acked")


def test_without_a_lease_keys_are_only_read(http: httpx.Client) -> None:
    seen = [http.post("/salts/next", json={"limit": 3}).json()["items"] for _ in range(2)]
    assert seen[0] == seen[1] == [{"key": 20}, {"key": 19}, {"key": 18}]


@pytest.mark.parametrize("key", [2**63, 10**40, -1, 1_000, "7", "", "a\0", "é" * 3_000])
def test_a_key_that_the_queue_cannot_have_is_unknown(http: httpx.Client, key: int | str) -> None:
    [outcome] = http.post("/salts/ack", json={"keys": [{"key": key}]}).json()["items"]
    assert (outcome["key"], outcome["effect"]) == (key, "unknown")


def test_neighbouring_keys_beyond_what_a_float_tells_apart_stay_apart(tmp_path: Path) -> None:
    several = [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 2]
    with client_of(holding(tmp_path, several, "integer")) as client:
        assert _read(client) == several
        [done] = client.post("/salts/ack", json={"keys": [{"key": 2**53 + 1}]}).json()["items"]
        assert (done["key"], done["effect"]) == (2**53 + 1, "acked")
        assert _read(client) == [2**53, 2**53 + 2, 2**63 - 2]


def test_keys_of_text_are_given_and_taken_as_they_are(tmp_path: Path) -> None:
    several = ["", "7", "a\nb", "it's", "\U0001f600"]
    with client_of(holding(tmp_path, several, "text")) as client:
        assert _read(client) == several
        done = client.post("/salts/ack", json={"keys": [{"key": key} for key in (*several[:2], 7)]}).json()["items"]
        assert [(each["key"], each["effect"]) for each in done] == [("", "acked"), ("7", "acked"), (7, "unknown")]
        [failed] = client.post("/salts/fail", json={"keys": [{"key": "a\nb", "error": "x"}]}).json()["items"]
        assert (failed["key"], failed["effect"]) == ("a\nb", "failed")
        assert client.get("/salts").json()["oldest_key"] == "a\nb"


def _read(client: httpx.Client) -> list[int | str]:
    return sorted(each["key"] for each in client.post("/salts/next", json={}).json()["items"])


@pytest.mark.parametrize("said", ["9007199254740993.0", "9.007199254740993e15", "-9007199254740993.0"])
def test_a_key_as_a_float_that_may_be_one_of_several_is_refused(http: httpx.Client, said: str) -> None:
    answer = http.post(
        "/salts/ack", content=f'{{"keys": [{{"key": {said}}}]}}', headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["at"] == "body.keys.0.key"


def test_a_key_as_a_float_that_is_one_whole_number_is_that(http: httpx.Client) -> None:
    [outcome] = http.post("/salts/ack", json={"keys": [{"key": 7.0}]}).json()["items"]
    assert (outcome["key"], outcome["effect"]) == (7, "acked")


@pytest.mark.parametrize("action", ["ack", "fail"])
def test_a_key_with_half_a_character_is_refused_before_any_other_is_acknowledged(
    http: httpx.Client, action: str
) -> None:
    body = r'{"keys": [{"key": 20}, {"key": "\ud800"}]}'
    answer = http.post(f"/salts/{action}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["at"] == "body.keys.1.key"
    assert 20 in leased(http, 20)


@pytest.mark.parametrize("action", ["next", "ack", "fail"])
def test_no_key_is_given_or_taken_without_the_token(http: httpx.Client, action: str) -> None:
    body = {"limit": 1} if action == "next" else {"keys": [{"key": 1}]}
    refused = http.post(f"/salts/{action}", json=body, headers={"Authorization": "Bearer another"})
    assert refused.status_code == 401


@pytest.mark.parametrize(
    ("action", "body", "place"),
    [
        ("next", {"limit": 0}, "body.limit"),
        ("next", {"limit": 5_001}, "body.limit"),
        ("next", {"lease": 10}, "body.lease"),
        ("ack", {"keys": []}, "body.keys"),
        ("ack", {"keys": [{"key": True}]}, "body.keys.0.key"),
        ("fail", {"keys": [{"key": 1, "fence": True}]}, "body.keys.0.fence"),
        ("fail", {"keys": [{"key": 1, "eror": "x"}]}, "body.keys.0.eror"),
    ],
)
def test_a_body_that_says_nothing_sensible_is_refused_by_the_place(
    http: httpx.Client, action: str, body: dict[str, object], place: str
) -> None:
    answer = http.post(f"/salts/{action}", json=body)
    assert answer.status_code == 422
    assert any(each["at"].startswith(place) for each in answer.json()["errors"]), answer.text


def test_a_queue_that_is_not_declared_is_not_found(http: httpx.Client) -> None:
    assert http.post("/none/next", json={}).status_code == 404


def test_garbage_among_texts_is_that_of_the_last_comparison(tmp_path: Path) -> None:
    """`status` reads none of them for it."""
    project = holding(tmp_path, ["a", "b"], "text")

    def grow() -> None:
        with closing(sqlite3.connect(tmp_path / "salts.db")) as database:
            database.execute("INSERT INTO source SELECT 'y' || max(rowid) || char(0) FROM source")
            database.commit()

    with project.queue("salts") as queue, client_of(project) as http:
        grow()
        assert http.get("/salts").json()["garbage"] == {"source": 0, "cover": 0}
        assert queue.verify().verdict.garbage == {"source": 1, "cover": 0}
        grow()
        assert http.get("/salts").json()["garbage"] == {"source": 1, "cover": 0}
        assert queue.verify().verdict.equal
        assert queue.status().garbage == {"source": 2, "cover": 0}
