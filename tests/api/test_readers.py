"""Documents with readers: no way leads to the text of one that names none of those who ask."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest
from mcp import Client
from prometheus_client import generate_latest

from instep.api.application import create_app
from instep.api.metrics import registry_of
from instep.api.middleware import Access
from instep.app import Instep, load
from instep.cli import main
from instep.container import Container
from instep.domain.filters import FilterError
from instep.domain.readers import MOST, PUBLIC, PrincipalError, checked_principals
from instep.domain.refs import PartitionRef
from instep.errors import InstepError, UserError
from instep.mcp.tools import Caller, create_server
from instep.targets.lance import LanceTarget
from tests.api.conftest import TIMEOUT_SECONDS, TOKEN, bearer, served
from tests.api.test_access import ELSEWHERE, refused
from tests.telemetry.scrape import values_of

#: In no document but that of alice and of operations; and in one that names nobody.
SECRET, NOBODY = "quagga", "tarpan"
OPS: Final = "token-of-operations"
PROJECT: Final = f"""\
name: closed
api:
  tokens:
    - {{token: {OPS}, principals: ["group:ops"]}}
targets:
  lance: {{type: lance, uri: .instep/lance}}
entities:
  Note:
    source: {{type: files, path: docs}}
    columns:
      acl: "string[]"
      due: date
      team: string
    readers: acl
"""
DOCUMENTS: Final = {
    "secret": f"---\nacl: [alice, 'group:ops']\nteam: {SECRET}\n---\n# {SECRET}\n\nThe {SECRET} zebra.\n",
    "open": f"---\nacl: [{PUBLIC}]\nteam: herd\n---\n# Open\n\nThe open zebra.\n",
    "none": f"---\nteam: {NOBODY}\n---\n# {NOBODY}\n\nThe {NOBODY} zebra.\n",
    "empty": f"---\nacl: []\n---\nThe {NOBODY} zebra, too.\n",
    "wrong": f"---\nacl: alice\n---\nThe {NOBODY} zebra, as well.\n",
    "failed": f"---\nacl: [alice]\ndue: {SECRET}\n---\n# Failed\n\nThe zebra that fails.\n",
}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Instep:
    folder = tmp_path_factory.mktemp("closed")
    (folder / "docs").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "docs" / f"{name}.md").write_text(text)
    (folder / "instep.yaml").write_text(PROJECT)
    found = load(folder)
    found.run()
    return found


@pytest.fixture(scope="module")
def client(closed: Instep) -> Iterator[httpx.Client]:
    """A server on this machine."""
    app = create_app(closed, token=TOKEN, loopback=True)
    with served(app) as address, httpx.Client(base_url=address, timeout=TIMEOUT_SECONDS) as client:
        yield client


def titles(found: Any) -> list[str]:
    return sorted(each["title"] if isinstance(each, dict) else each.title for each in found)


@pytest.mark.parametrize(
    ("principals", "wanted"),
    [
        ((), ["Open"]),
        (("bob",), ["Open"]),
        (("alic", "group:op", "ALICE"), ["Open"]),
        (("alice",), ["Open", SECRET]),
        (("bob", "group:ops"), ["Open", SECRET]),
    ],
)
def test_documents_are_found_by_their_readers(closed: Instep, principals: tuple[str, ...], wanted: list[str]) -> None:
    for mode in ("text", "vector", "hybrid"):
        assert titles(closed.search("zebra", mode=mode, principals=principals)) == wanted
    known = set(wanted)
    for name, title in (("secret", SECRET), ("open", "Open"), ("none", NOBODY)):
        if title in known:
            assert closed.why("Note", f"docs/{name}.md", principals=principals).row["title"] == title
        else:
            with pytest.raises(UserError, match="has no row"):
                closed.why("Note", f"docs/{name}.md", principals=principals)


def test_no_way_leads_to_a_forbidden_text(
    closed: Instep, client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    hit = next(each for each in closed.search(SECRET, principals=["alice"]) if each.title == SECRET)
    ids = (hit.chunk_id, hit.document_id, hit.source_uri, "docs/secret.md")
    project = ["--project", str(closed.project.root)]

    def command(*arguments: str) -> Callable[[], str]:
        def run() -> str:
            with suppress(SystemExit):
                main([*arguments, *project])
            return "".join(capsys.readouterr())

        return run

    def asked(path: str, token: str | None = None, **said: str) -> Callable[[], str]:
        headers = bearer(token) if token else {}
        return lambda: client.get(path, params=said, headers=headers).text

    def python(call: Callable[[], Any]) -> Callable[[], str]:
        def run() -> str:
            try:
                return repr(call())
            except InstepError as error:
                return str(error)

        return run

    ways: dict[str, Callable[[], str]] = {}
    for mode in ("text", "vector", "hybrid"):
        ways[f"search {mode}"] = command("search", SECRET, "--mode", mode, "--json", "--as", "bob")
        ways[f"/search {mode}"] = asked("/api/search", q=SECRET, mode=mode)
        ways[f"facets {mode}"] = asked("/api/search", q=SECRET, mode=mode, facet="acl")
        ways[f"Instep.search {mode}"] = python(partial(closed.search, SECRET, mode=mode))
    for column in ("team", "acl"):
        for begin in ("", "q", "t"):
            ways[f"values of {column} that begin with {begin!r}"] = asked("/api/values", column=column, begin=begin)
    ways["values with the server's token"] = asked("/api/values", TOKEN, column="team")
    ways["Instep.values"] = python(partial(closed.values, "team", principals=["bob"]))
    ways["search shown"] = command("search", SECRET)
    ways["search of a generation"] = command("search", SECRET, "--generation", "", "--json")
    ways["search with the server's token"] = asked("/api/search", TOKEN, q=SECRET)
    ways["search with a wrong token"] = asked("/api/search", OPS[:-1], q=SECRET)
    ways["principals that are asked for"] = asked("/api/search", q=SECRET, principals="alice")
    for id in ids:
        ways[f"why {id}"] = command("why", "Note", id, "--json", "--as", "bob")
        ways[f"/why {id}"] = asked("/api/why", ref="Note", id=id)
        ways[f"why lance {id}"] = command("why", "lance", id)
        ways[f"Instep.why {id}"] = python(partial(closed.why, "Note", id))
    for principals in ((), ("bob",)):
        asks: list[tuple[str, dict[str, Any]]] = [
            *(("search", {"query": SECRET, "mode": mode}) for mode in ("text", "vector", "hybrid")),
            *(("values", {"column": column, "begin": begin}) for column in ("team", "acl") for begin in ("", "q", "t")),
            *(("why", {"entity": "Note", "id": id}) for id in ids),
            ("status", {}),
            ("failures", {}),
        ]
        for tool, arguments in asks:
            ways[f"MCP as {principals}: {tool} {arguments}"] = by_agent(closed, principals, tool, arguments)
    for name in ("failures", "status", "jobs", "diff"):
        ways[name] = command(name, "--json")
        ways[f"{name}, shown"] = command(name)
    for path in ("/api/failures", "/api/jobs", "/api/partitions", "/api/project", "/metrics", "/", "/js/search.js"):
        ways[path] = asked(path)
    ways["Instep.failures"] = python(closed.failures)
    leaks = {name for name, way in ways.items() if {SECRET, NOBODY} & _words(way(), SECRET, NOBODY)}
    assert leaks == set()
    (failure,) = closed.failures()
    assert failure.reason == "column due: a value of another type, not shown as its documents have readers"


def by_agent(instep: Instep, principals: tuple[str, ...], tool: str, arguments: dict[str, Any]) -> Callable[[], str]:
    """All that an agent of such a reader (of the one who runs the project, if it is none) is told."""
    server = create_server(instep, lambda _: Caller(principals, reader=bool(principals)))

    async def ask() -> str:
        async with Client(server) as client:
            return (await client.call_tool(tool, arguments)).model_dump_json()

    return partial(anyio.run, ask)


def test_an_agent_of_a_reader_is_told_what_it_may_read(closed: Instep) -> None:
    """So that the ways above do ask."""
    for principals, wanted in ((("bob",), ["Open"]), (("alice",), ["Open", SECRET])):
        found = json.loads(by_agent(closed, principals, "search", {"query": "zebra"})())
        assert titles(found["structured_content"]["result"]) == wanted
    assert SECRET in by_agent(closed, ("alice",), "values", {"column": "team"})()
    assert SECRET in by_agent(closed, ("alice",), "why", {"entity": "Note", "id": "docs/secret.md"})()


def _words(text: str, *words: str) -> set[str]:
    """Those of the words that are told. A question may be repeated in its answer."""
    asked = [f'"q": "{SECRET}"', f"q={SECRET}"]
    for each in asked:
        text = text.replace(each, "")
    return {word for word in words if word in text}


def test_who_may_read_documents_is_not_told(closed: Instep, client: httpx.Client) -> None:
    for ask in (lambda: closed.facets("zebra", ["due", "acl"]), lambda: closed.values("acl", principals=["alice"])):
        with pytest.raises(UserError, match="values of 'acl' are not shown"):
            ask()
    told = client.get("/api/search", params={"q": "zebra", "facet": "acl"}, headers=bearer(OPS))
    assert told.is_client_error
    assert "alice" not in told.text
    assert closed.facets("zebra", ["due"]) == {"due": []}
    found = client.get("/api/search", params={"q": "zebra"}, headers=bearer(OPS)).json()["items"]
    assert {each["title"]: each["columns"] for each in found} == {
        "Open": {"due": None, "team": "herd"},
        SECRET: {"due": None, "team": SECRET},
    }


def test_tokens_stand_for_principals(client: httpx.Client) -> None:
    assert titles(client.get("/api/search", params={"q": "zebra"}).json()["items"]) == ["Open"]
    found = client.get("/api/search", params={"q": "zebra"}, headers=bearer(OPS)).json()["items"]
    assert titles(found) == ["Open", SECRET]
    answer = client.get("/api/why", params={"ref": "Note", "id": found[0]["chunk_id"]}, headers=bearer(OPS))
    assert answer.status_code == 200


def test_values_are_those_of_what_one_may_read(client: httpx.Client) -> None:
    def told(headers: dict[str, str] | None = None, **asked: str) -> list[str]:
        answer = client.get("/api/values", params=asked, headers=headers)
        assert answer.status_code == 200, answer.text
        return [each["value"] for each in answer.json()["items"]]

    assert told(column="team") == ["herd"]
    assert told(bearer(OPS), column="team") == ["herd", SECRET]
    assert told(bearer(OPS), column="team", begin=SECRET[:2]) == [SECRET]
    assert told(column="team", begin=SECRET[:2]) == []
    # Who else may read a document is no value to be completed.
    for headers in ({}, bearer(OPS)):
        answer = client.get("/api/values", params={"column": "acl"}, headers=headers)
        assert answer.status_code == 409
        assert "who may read" in answer.json()["detail"]
    (entity,) = client.get("/api/project").json()["entities"]
    assert {each["name"] for each in entity["columns"] if each["counted"]} == {"due", "team"}
    assert "acl" not in {each["name"] for each in entity["columns"]}


@pytest.mark.parametrize("where", ["acl CONTAINS 'alice'", "team = 'ops' AND NOT acl CONTAINS 'bob'", "acl IS NULL"])
def test_a_filter_does_not_tell_who_else_may_read_a_document(
    closed: Instep, client: httpx.Client, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    with pytest.raises(UserError, match="'acl' says who may read") as raised:
        closed.search("zebra", where=where, principals=["group:ops"])
    assert isinstance(raised.value, FilterError)
    assert raised.value.position == where.index("acl") + 1
    answer = client.get("/api/search", params={"q": "zebra", "where": where}, headers=bearer(OPS))
    assert (answer.status_code, answer.json()["position"]) == (400, where.index("acl") + 1)
    root = str(closed.project.root)
    assert main(["search", "zebra", "--as", "group:ops", "--where", where, "--project", root]) == 1
    assert "'acl' says who may read" in capsys.readouterr().err


def test_a_token_of_a_reader_asks_searches_alone() -> None:
    access = Access(TOKEN, loopback=False, readers={OPS: ("group:ops",)})
    assert refused(access, path="/api/search", token=OPS) is None
    assert refused(access, path="/api/why", token=OPS) is None
    assert refused(access, path="/api/values", token=OPS) is None
    for path in ("/api/jobs", "/api/failures", "/metrics", "/api/search/more", "/api/openapi.json"):
        assert refused(access, path=path, token=OPS) == 401
    assert refused(access, "POST", path="/api/search", token=OPS) == 401
    assert refused(ELSEWHERE, path="/api/search", token=OPS) == 401
    assert OPS not in repr(access)


def test_a_revocation_embeds_nothing_and_its_delay_is_a_metric(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "secret.md").write_text(DOCUMENTS["secret"])
    (tmp_path / "instep.yaml").write_text(PROJECT)
    instep = load(tmp_path)
    instep.run()
    assert titles(instep.search("zebra", principals=["alice"])) == [SECRET]
    for readers in ("['group:ops']", "group:ops"):
        (tmp_path / "docs" / "secret.md").write_text(DOCUMENTS["secret"].replace("[alice, 'group:ops']", readers))
        (result,) = instep.run()
        assert (result.counts.written, result.counts.embedded) == (1, 0)
        assert instep.search("zebra", principals=["alice"]) == []
    assert instep.search("zebra", principals=["group:ops"]) == [], "no list of readers is none"
    told = generate_latest(registry_of(instep)).decode()
    (line,) = [each for each in told.splitlines() if each.startswith("instep_readers_lag_seconds{")]
    assert line.startswith('instep_readers_lag_seconds{entity="Note"} ')
    assert 0 <= float(line.rpartition(" ")[2]) < 600


@pytest.mark.parametrize("change", ["revoked", "gone", "fails"])
def test_a_build_from_before_a_revocation_is_not_promoted_as_it_is(tmp_path: Path, change: str) -> None:
    (tmp_path / "docs").mkdir()
    secret = tmp_path / "docs" / "secret.md"
    for name in ("secret", "open"):
        (tmp_path / "docs" / f"{name}.md").write_text(DOCUMENTS[name])
    (tmp_path / "instep.yaml").write_text(PROJECT)
    instep = load(tmp_path)
    instep.run()
    instep.run(generation="v2")
    instep.promote("Note", "v2")
    instep.promote("Note", "")
    instep.promote("Note", "v2")
    text = DOCUMENTS["secret"].replace("[alice, 'group:ops']", "['group:ops']")
    match change:
        case "revoked":
            secret.write_text(text)
        case "gone":
            secret.unlink()
        case "fails":
            secret.write_text(text.replace("---\n#", "due: never\n---\n#"))
    instep.run(allow_deletes=True)
    with pytest.raises(UserError, match="readers who may not read them") as caught:
        instep.promote("Note", "", allow_deletes=True)
    assert "instep run Note --generation ''" in str(caught.value)
    assert titles(instep.search("zebra", principals=["alice"])) == ["Open"]
    instep.run(generation="", allow_deletes=True)
    instep.promote("Note", "", allow_deletes=True)
    assert titles(instep.search("zebra", principals=["alice"])) == ["Open"]


@pytest.mark.parametrize(("flaw", "left"), [("due: soon\n", ["group:ops"]), ("", [])], ids=["column", "bytes"])
def test_a_revocation_in_a_document_that_fails_is_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flaw: str, left: list[str]
) -> None:
    def found() -> list[str]:
        return [each for each in ("alice", "group:ops") if instep.search("zebra", principals=[each])]

    (tmp_path / "docs").mkdir()
    (tmp_path / "instep.yaml").write_text(PROJECT)
    secret = tmp_path / "docs" / "secret.md"
    secret.write_text(DOCUMENTS["secret"])
    instep = load(tmp_path)
    instep.run()
    assert found() == ["alice", "group:ops"]
    revoked = DOCUMENTS["secret"].replace("alice, ", "")
    secret.write_text(revoked.replace("acl:", f"{flaw}acl:") if flaw else f"{revoked}\0")
    (result,) = instep.run()
    assert (result.counts.failed, result.counts.embedded) == (1, 0)
    assert found() == left
    (failure,) = instep.failures()
    assert ("found by nobody" in failure.reason) != bool(left)
    if left:
        assert main(["why", "Note", "docs/secret.md", "--as", "group:ops", "--project", str(tmp_path)]) == 0
        assert "an older version is indexed, and the newer one is not: see instep failures" in " ".join(
            capsys.readouterr().out.split()
        )
    told = values_of(generate_latest(registry_of(instep)).decode())
    assert told["instep_readers_lag_seconds", "entity=Note"] == told["instep_lag_seconds", "entity=Note"]
    assert main(["diff", "--project", str(tmp_path)]) == 0, "what is left is as it is recorded"
    capsys.readouterr()
    (again,) = instep.run()
    assert again.counts.read == 0
    secret.write_text(DOCUMENTS["secret"])
    (mended,) = instep.run()
    assert (mended.counts.written, mended.counts.embedded) == (1, 0)
    assert found() == ["alice", "group:ops"]
    assert instep.failures() == []


def test_the_delay_is_not_known_while_not_all_can_be_listed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "open.md").write_text(DOCUMENTS["open"])
    (tmp_path / "instep.yaml").write_text(PROJECT)
    instep = load(tmp_path)
    instep.run()
    with closing(Container(instep.project)) as container, closing(container.ledger()) as ledger:
        for problem, known in (("docs/x: no rights", False), (None, True)):
            ledger.losses.tell_listing(PartitionRef("Note"), problem)
            told = values_of(generate_latest(registry_of(instep)).decode())
            assert (told["instep_readers_lag_seconds", "entity=Note"] < math.inf) is known


def test_readers_that_the_index_does_not_have_yet_let_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "open.md").write_text(DOCUMENTS["open"])
    declared = tmp_path / "instep.yaml"
    declared.write_text(PROJECT.replace("    readers: acl\n", "").replace('      acl: "string[]"\n', ""))
    load(tmp_path).run()
    declared.write_text(PROJECT)
    for ask in (
        lambda: load(tmp_path).search("zebra"),
        lambda: load(tmp_path).why("Note", "docs/open.md"),
        lambda: load(tmp_path).why("Note", "docs/not-there.md"),
    ):
        with pytest.raises(UserError, match="built without the readers"):
            ask()
    load(tmp_path).run()
    assert titles(load(tmp_path).search("zebra")) == ["Open"]


def test_readers_that_are_new_let_nobody_in_to_what_was_built_without(tmp_path: Path) -> None:
    """Though the column is there: a document that failed since may have rows with those of an older version."""
    (tmp_path / "docs").mkdir()
    secret = tmp_path / "docs" / "secret.md"
    secret.write_text(DOCUMENTS["secret"])
    declared = tmp_path / "instep.yaml"
    column = '      acl: {type: "string[]", on_wrong: null}\n'
    project = PROJECT.replace('      acl: "string[]"\n', column)
    declared.write_text(project.replace("    readers: acl\n", ""))
    for number in range(12):
        (tmp_path / "docs" / f"open-{number}.md").write_text(DOCUMENTS["open"])
    load(tmp_path).run()
    secret.write_text(DOCUMENTS["secret"].replace("acl: [alice,", "due: soon\nacl: ["))
    load(tmp_path).run()
    declared.write_text(project)
    with pytest.raises(UserError, match="built without the readers"):
        load(tmp_path).search("zebra", principals=["alice"])
    (plan,) = load(tmp_path).plan()
    assert "readers are new" in " ".join(plan.why)
    load(tmp_path).run()
    assert set(titles(load(tmp_path).search("zebra", limit=20, principals=["alice"]))) == {"Open"}


def test_readers_are_obeyed_between_the_move_of_the_alias_and_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "secret.md").write_text(DOCUMENTS["secret"])
    (tmp_path / "instep.yaml").write_text(PROJECT)
    promote = LanceTarget.promote
    found: list[Any] = []

    def promoted(target: LanceTarget, alias: str, physical: str | None, epoch: int) -> None:
        promote(target, alias, physical, epoch)
        instep = load(tmp_path)
        found.extend(titles(instep.search("zebra", principals=[each])) for each in ("alice", "bob"))
        found.append(instep.why("Note", "docs/secret.md", principals=["alice"]).row["title"])

    monkeypatch.setattr(LanceTarget, "promote", promoted)
    for _ in range(2):
        load(tmp_path).run(full_refresh=True)
    assert found == [[SECRET], [], SECRET] * 2


@pytest.mark.parametrize(
    "principals", [[""], [None], [42], b"al", ["a\0"], ["x" * 2_001], [f"p{n}" for n in range(MOST + 1)]]
)
def test_principals_that_cannot_be_are_refused(principals: Any) -> None:
    with pytest.raises(PrincipalError):
        checked_principals(principals)


def test_what_is_declared_of_readers_is_checked(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for before, after, said in (
        ("readers: acl", "readers: due", "is not one of its columns of the type string"),
        ("readers: acl", "readers: ac", "did you mean acl"),
        ("readers: acl", "readers: acl\n    search: {boosts: {acl: 1}}", "boosts.acl: says who may read documents"),
        (f"token: {OPS}", "token: short", "at least 16 characters"),
        ('["group:ops"]', "[]", "must not be empty"),
    ):
        (tmp_path / "instep.yaml").write_text(PROJECT.replace(before, after))
        with pytest.raises(UserError) as raised:
            load(tmp_path)
        assert said in str(raised.value)
        assert json.dumps(OPS) not in str(raised.value)
