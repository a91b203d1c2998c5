"""Aliases as readers find them with pymilvus itself, and what is said about servers that are away or refuse."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from instep.errors import Away, Fenced, InstepError, Transient, UserError
from instep.targets.milvus import location as places
from instep.targets.milvus.location import Location
from instep.targets.milvus.target import MilvusTarget
from instep.testing.target_rows import BUCKETS, DIMENSIONS, expected, put, vector_of
from tests.servers.milvus import running_milvus
from tests.servers.process import START_SECONDS
from tests.targets.milvus.reading import content
from tests.targets.milvus.watching import watch

TOKEN = "ann:hunter2-s3cret"


def test_readers_need_no_instep(served: MilvusTarget) -> None:
    """By the alias, in one step from one index to the next."""
    client = MilvusClient(running_milvus().url(), dedicated=True)
    for number in (1, 2):
        physical = f"Document__{number}"
        served.create(physical, DIMENSIONS, BUCKETS)
        put(served, physical, {"a": [f"text {number}"], "b": ["other"]}, epoch=number, attempt="1")
        served.promote("Document", physical, number)
        query = {"data": [vector_of(f"text {number}")], "anns_field": "vector", "limit": 1}
        (found,) = client.search("Document", output_fields=["document_id", "text", "title", "_version"], **query)[0]
        entity = {"document_id": "a", "text": f"text {number}", "title": None, "_version": number}
        assert {name: found["entity"][name] for name in entity} == entity
        assert found["distance"] == pytest.approx(1)
        (found,) = client.search("Document", data=["text"], anns_field="_words", limit=1)[0]
        assert client.query("Document", filter='document_id == "b"', output_fields=["text"])[0]["text"] == "other"
    served.promote("Document", None, 3)
    assert client.list_aliases("Document__2")["aliases"] == []
    client.close()


@pytest.mark.parametrize("where", ["served", "embedded"])
def test_the_example_of_the_documentation_works(where: str, request: pytest.FixtureRequest) -> None:
    """Also in a server that was started again, or by a process that opens the file: nothing is in memory there."""
    target: MilvusTarget = request.getfixturevalue(where)
    target.create("Document__1", DIMENSIONS, BUCKETS)
    put(target, "Document__1", {"a": ["by the river bank"], "b": ["other"]}, epoch=1, attempt="1")
    target.promote("Document", "Document__1", 1)
    page = (Path(__file__).parents[3] / "docs" / "targets.md").read_text()
    section = re.search(r"^## milvus$.*?^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert section is not None
    setup, *statements = section[1].replace("http://localhost:19530", target.uri).strip().splitlines()
    Location(target.uri).call("release_collection", "Document__1")
    said: dict[str, Any] = {"vector": vector_of("by the river bank")}
    exec(setup, said)
    found = [answer for each in statements if (answer := _told(each, said)) is not None]
    assert [hits[0][0]["entity"]["text"] for hits in found] == ["by the river bank"] * 2
    said["client"].close()


def _told(statement: str, said: dict[str, Any]) -> Any:
    """What it answers, if it is a question."""
    if " = " in statement.partition("(")[0]:
        exec(statement, said)
        return None
    return eval(statement, said) if statement else None


@pytest.mark.parametrize("after", [1, 2, 3, 4, 5, 6])
def test_a_promotion_that_was_broken_off_is_finished_by_the_next_try(
    embedded: MilvusTarget, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The record decides; readers follow it with the next promotion."""
    for number in (1, 2):
        embedded.create(f"D__{number}", DIMENSIONS, BUCKETS)
    embedded.promote("D", "D__1", 1)
    left = [after]

    def before(method: str, said: dict[str, Any]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Transient("killed")

    watch(monkeypatch, before)
    with pytest.raises(Transient):
        embedded.promote("D", "D__2", 2)
    monkeypatch.undo()
    assert embedded.served("D") in ("D__1", "D__2")
    embedded.promote("D", "D__2", 2)
    assert embedded.served("D") == "D__2"
    assert Location(embedded.uri).call("describe_alias", "D")["collection_name"] == "D__2"


def test_an_overtaken_promotion_leaves_the_alias_to_the_newer_one(
    served: MilvusTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        served.create(f"D__{number}", DIMENSIONS, BUCKETS)
    served.promote("D", "D__1", 1)

    def before(method: str, said: dict[str, Any]) -> None:
        if method == "alter_alias" and served.served("D") == "D__2":
            served.promote("D", "D__3", 3)

    watch(monkeypatch, before)
    with pytest.raises(Fenced):
        served.promote("D", "D__2", 2)
    assert served.served("D") == "D__3"
    assert Location(served.uri).call("describe_alias", "D")["collection_name"] == "D__3"


def test_an_alias_cannot_be_called_like_a_collection(embedded: MilvusTarget) -> None:
    for name in ("D", "D__1"):
        embedded.create(name, DIMENSIONS, BUCKETS)
    with pytest.raises(UserError, match="is a collection"):
        embedded.promote("D", "D__1", 1)
    assert embedded.served("D") is None


def test_a_collection_of_others_is_left_alone(embedded: MilvusTarget) -> None:
    Location(embedded.uri).call("create_collection", "Theirs", dimension=DIMENSIONS)
    for touch in (
        lambda: embedded.create("Theirs", DIMENSIONS, BUCKETS),
        lambda: embedded.fence("Theirs", 1),
        lambda: embedded.promote("Document", "Theirs", 1),
    ):
        with pytest.raises(UserError, match="not one of Instep's"):
            touch()


def test_a_server_that_goes_and_comes_back(served: MilvusTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections are loaded again where the server has not done so itself."""
    server = running_milvus()
    served.create("D", DIMENSIONS, BUCKETS)
    put(served, "D", {"a": ["one"]}, epoch=1, attempt="1")
    try:
        server.kill()
        monkeypatch.setattr(places, "TIMEOUT_SECONDS", 0.2)
        monkeypatch.setattr(places, "_CONNECT_SECONDS", 0.2)
        for target in (served, MilvusTarget(served.uri, "another-t0ken", "bucket")):
            with pytest.raises(Transient) as caught:
                target.fence("D", 2)
            _has_no_secrets(caught.value, target)
            with pytest.raises(Away):
                target.check()
    finally:
        monkeypatch.undo()
        server.revive()
    _patiently(lambda: served.fence("D", 2))
    put(served, "D", {"a": ["two"]}, epoch=2, attempt="2")
    assert content(served, "D") == expected({"a": ["two"]})


def _patiently(call: Callable[[], object]) -> None:
    """As the service does: an outage is waited out."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            call()
        except Transient:
            assert time.monotonic() < deadline
        else:
            return


def _has_no_secrets(error: InstepError, target: MilvusTarget) -> None:
    shown = f"{error}{error!r}{error.__cause__}{target!r}{target}"
    assert "hunter2" not in shown
    assert "t0ken" not in shown


def test_errors_of_milvus_are_shown_without_the_token(embedded: MilvusTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    target = MilvusTarget(embedded.uri, TOKEN, "bucket")
    assert pickle.loads(pickle.dumps(target)) == target

    def refuse(*args: Any) -> None:
        raise MilvusException(1100, f"user {TOKEN} may not do this\n  at all")

    monkeypatch.setattr(places, "_client", refuse)
    with pytest.raises(UserError, match=r"Milvus refused: user \*\*\* may not do this at all") as caught:
        target.rows("D")
    _has_no_secrets(caught.value, target)


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (8, "rate limit exceeded", Transient),
        (3, "memory limit exceeded", Transient),
        (1, "service not ready[querynode=7]: Initializing", Transient),
        (1100, "invalid parameter", places.Refused),
        (100, "collection not found", places.Missing),
        (1, "query results exceed the limit size", places.TooLarge),
        (1, "auth check failure, please check username and password", UserError),
    ],
)
def test_errors_of_milvus_have_the_right_kind(
    embedded: MilvusTarget, monkeypatch: pytest.MonkeyPatch, code: int, said: str, kind: type[InstepError]
) -> None:
    def refuse(*args: Any) -> None:
        raise MilvusException(code, said)

    monkeypatch.setattr(places, "_client", refuse)
    with pytest.raises(InstepError) as caught:
        embedded.rows("D")
    assert type(caught.value) is kind


def test_a_place_that_cannot_be_made_is_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for uri in ("file/milvus.db", "file.db"):
        (tmp_path / "file.db").write_text("x")
        with pytest.raises(UserError):
            MilvusTarget(str(tmp_path / uri), None, "bucket").check()


def test_a_file_needs_milvus_lite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "milvus_lite", None)
    with pytest.raises(UserError, match=r"instep\[milvus\]' milvus-lite"):
        MilvusTarget(str(tmp_path / "m.db"), None, "bucket").check()


def test_importing_the_target_imports_neither_milvus_nor_arrow() -> None:
    code = "import sys, instep.targets.milvus.target; assert not {'pymilvus', 'grpc', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
