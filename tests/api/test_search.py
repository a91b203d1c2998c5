"""Searches over HTTP: what is asked is what is looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from instep.app import Instep
from tests.api.conftest import PROJECT, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two entities of the same documents."""
    (tmp_path / "docs").mkdir()
    page = (
        "  Page:\n    source: {type: files, path: docs}\n    target: lance\n    embed: {type: static}\n"
        '    columns: {kind: {type: string, from: "file:extension"}, team: string, tags: "string[]"}\n'
    )
    (tmp_path / "instep.yaml").write_text(PROJECT + page)
    write(tmp_path, 5)
    return tmp_path


def test_a_search_is_limited_to_the_named_entities(client: httpx.Client, instep: Instep) -> None:
    instep.run()

    def found(**asked: Any) -> list[dict[str, Any]]:
        answer = client.get("/api/search", params={"q": "word3x7", **asked})
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    assert {each["entity"] for each in found()} == {"Document", "Page"}
    assert {each["entity"] for each in found(entity="Page")} == {"Page"}
    assert [each["title"] for each in found(entity="Page", mode="text")] == ["Document 3"], "only one has the word"
    assert len(found(entity="Page", mode="vector", k=100)) > 5, "each has some direction"
    assert len(found(k=3, mode="hybrid")) == 3
    assert len(found(k=1000, mode="vector")) == len(instep.search("word3x7", limit=1000, mode="vector")) > 10
    for many, code in (({"k": 1001}, 422), ({"k": 1000, "offset": 1}, 409)):
        assert client.get("/api/search", params={"q": "word3x7", **many}).status_code == code


def test_a_hit_says_whether_it_is_weak_where_vectors_know_it(
    folder: Path, client: httpx.Client, instep: Instep
) -> None:
    """The second entity has vectors of meaning, the first one of hashed words."""
    instep.run()

    def weak(query: str) -> dict[str, set[bool | None]]:
        items = client.get("/api/search", params={"q": query, "mode": "vector", "k": 100}).json()["items"]
        return {name: {each["weak"] for each in items if each["entity"] == name} for name in ("Document", "Page")}

    assert weak("lattice quantum chromodynamics") == {"Document": {None}, "Page": {True}}
    assert False in weak("Document 3")["Page"]


def test_facets_stand_beside_the_hits(client: httpx.Client, instep: Instep) -> None:
    instep.run()
    asked: dict[str, Any] = {"q": "word3x7", "mode": "text", "k": 1}
    assert client.get("/api/search", params=asked).json()["facets"] == {}
    answer = client.get("/api/search", params={**asked, "facet": ["kind"], "facet_values": 2}).json()
    assert len(answer["items"]) == 1
    assert answer["facets"] == {"kind": [{"value": "md", "count": 1}]}
    assert client.get("/api/search", params={**asked, "facet": ["kin"]}).status_code == 409
    assert client.get("/api/search", params={**asked, "facet": ["kind"] * 6}).status_code == 422


def test_a_filter_that_means_nothing_is_refused_at_its_place(client: httpx.Client, instep: Instep) -> None:
    instep.run()
    answer = client.get("/api/search", params={"q": "word3x7", "entity": "Page", "where": "title = 'x' AND tilte = 1"})
    assert answer.status_code == 400
    problem = answer.json()
    assert (problem["kind"], problem["position"]) == ("FilterError", 17)
    assert "did you mean title?" in problem["detail"]
    asked: dict[str, Any] = {
        "q": "word3x7",
        "entity": "Page",
        "where": "title = 'Document 3'",
        "group": "true",
        "k": 100,
    }
    assert [each["title"] for each in client.get("/api/search", params=asked).json()["items"]] == ["Document 3"]
    assert not client.get("/api/search", params={**asked, "offset": 1}).json()["items"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/search?q=zebra&filter=x", "filter"),
        ("/api/failures?entty=Page", "entty"),
        ("/api/jobs?x=1", "x"),
        ("/api/buckets/Page?entity=Other", "entity"),  # It is one of the path.
    ],
)
def test_a_parameter_that_a_route_does_not_have_is_refused(client: httpx.Client, path: str, name: str) -> None:
    """Passed over, a filter by another name would be none."""
    answer = client.get(path)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(f"query.{name}: there is no such parameter; allowed: ")


def test_a_parameter_that_is_no_list_may_be_given_once(client: httpx.Client) -> None:
    """Of two filters the first would be none."""
    answer = client.get("/api/search", params=[("q", "zebra"), ("where", "title = 'A'"), ("where", "title = 'B'")])
    assert (answer.status_code, answer.json()["detail"]) == (422, "query.where: it may be given once")
    assert client.get("/api/failures?entity=Page&entity=Page").status_code == 200


def test_values_complete_a_filter(tmp_path: Path, client: httpx.Client, instep: Instep) -> None:
    odd = ["100%_sure", "100 sure", "it's", "it_s"]
    for number, team in enumerate(odd):
        (tmp_path / "docs" / f"odd{number}.md").write_text(f'---\nteam: "{team}"\ntags: [new, {number}]\n---\nOdd.\n')
    instep.run()

    def told(**asked: Any) -> list[dict[str, Any]]:
        answer = client.get("/api/values", params=asked)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def values(**asked: Any) -> list[Any]:
        return [each["value"] for each in told(**asked)]

    assert values(column="team", begin="100%") == ["100%_sure"], "what is typed stands for itself"
    assert values(column="team", begin="it's") == ["it's"]
    assert sorted(values(column="team")) == sorted(odd)
    assert told(column="tags", begin="n") == [{"value": "new", "count": 4}]
    assert len(values(column="tags", limit=2)) == 2
    assert client.get("/api/values", params={"column": "teem"}).status_code in (400, 409)
    assert client.get("/api/values", params={"column": "team", "entity": "Nothing"}).status_code == 404
