"""The Qdrant target on a server: the contract, and what can go wrong on the way there.

The server is `tests.doubles.qdrant_server`, or a real one whose URL is in INSTEP_TEST_QDRANT.
"""

from __future__ import annotations

import math
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from qdrant_client import QdrantClient

from instep.domain.waves import Mark
from instep.domain.words import text_query
from instep.errors import Away, Fenced, Transient, UserError
from instep.servers import calls
from instep.targets.document_target import ChunkChanges, DocumentTarget
from instep.targets.qdrant import collections, writing
from instep.targets.qdrant import server as module
from instep.targets.qdrant.collections import TooLarge, point_id
from instep.targets.qdrant.server import ServerCollections
from instep.targets.qdrant.target import QdrantTarget
from instep.testing.ownership import DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import (
    BUCKETS,
    DIMENSIONS,
    NOTHING,
    Content,
    Documents,
    OnOneIndex,
    expected,
    put,
    replaced,
    rows_of,
)
from tests.contracts.target_in_short import ShortContract
from tests.doubles.qdrant_server import QdrantServer

REAL = os.environ.get("INSTEP_TEST_QDRANT")


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    with QdrantServer() as running:
        yield running


def content(url: str, physical: str) -> Content:
    """As qdrant-client itself reads it."""
    client = QdrantClient(url=url, check_compatibility=False)
    rows, _ = client.scroll(physical, limit=100_000, with_payload=["document_id", "text"])
    client.close()
    return Counter((row.payload["document_id"], row.payload["text"]) for row in rows if row.payload)


class OnServer(OnOneIndex):
    rounds = 2

    @pytest.fixture
    def target(self, request: pytest.FixtureRequest) -> Iterator[QdrantTarget]:
        if REAL is None:
            yield QdrantTarget(request.getfixturevalue("server").url, None)
            return
        target = QdrantTarget(REAL, os.environ.get("INSTEP_TEST_QDRANT_KEY"))
        yield target
        for name in target.collections.names():
            target.collections.drop(name)

    def content(self, target: DocumentTarget, physical: str) -> Content:
        assert isinstance(target, QdrantTarget)
        return content(target.uri, physical)


class TestInShort(OnServer, ShortContract):
    """What may differ from Qdrant in this process."""


@pytest.mark.proof
class TestOwnership(DocumentOwnership):
    target = OnServer.target


@pytest.mark.long
class TestQdrantServer(OnServer, TargetContract):
    """All of it."""

    counts_repeats = False
    every = 6
    upkeep = ("indexed",)


@pytest.fixture
def target(server: QdrantServer) -> QdrantTarget:
    """On the double: what follows needs it to misbehave, or to say what it was asked."""
    made = QdrantTarget(server.url, None)
    made.create("D__1", DIMENSIONS, BUCKETS)
    server.requests.clear()
    return made


def asked(server: QdrantServer, method: str, what: str, name: str = "D__1") -> list[Any]:
    """Bodies of the requests of this kind about a collection."""
    path = f"/collections/{name}/{what}".rstrip("/")
    return [body for each, at, body in server.requests if (each, at) == (method, path)]


# -- what goes over the wire -------------------------------------------------------------------


def test_a_client_finds_the_written_rows(server: QdrantServer, target: QdrantTarget) -> None:
    put(target, "D__1", {"a": ["one", "two"]}, epoch=2**40, attempt="1")
    target.promote("D", "D__1", 2**40)
    row = rows_of({"a": ["one", "two"]}, epoch=2**40).to_pylist()[1]
    vector = row.pop("vector")
    client = QdrantClient(url=server.url, check_compatibility=False)
    (found,) = client.retrieve("D", [point_id(row["chunk_id"])], with_vectors=True)
    assert found.payload == row
    assert found.vector == pytest.approx([each / math.hypot(*vector) for each in vector])
    client.close()


def test_every_write_is_conditional_and_bounded(
    server: QdrantServer, target: QdrantTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "REQUEST_ROWS", 4)
    monkeypatch.setattr(writing, "_REMOVED_AT_ONCE", 6)
    put(target, "D__1", {f"d{number}": ["1", "2"] for number in range(10)}, epoch=5, attempt="1")
    put(target, "D__1", {f"d{number}": ["1"] for number in range(10)}, epoch=6, attempt="2")
    upserts, deletes = asked(server, "PUT", "points"), asked(server, "POST", "points/delete")
    assert [len(each["batch"]["ids"]) for each in upserts] == [4] * 5 + [4, 4, 2]
    assert [len(each["filter"]["must"][0]["has_id"]) for each in deletes] == [6, 4]
    guards = [each["update_filter"]["must"][0] for each in upserts] + [each["filter"]["must"][1] for each in deletes]
    assert [(each["key"], each["range"]["lte"]) for each in guards] == [("_version", 5)] * 5 + [("_version", 6)] * 5
    assert content(server.url, "D__1") == expected({f"d{number}": ["1"] for number in range(10)})


def test_a_request_that_is_too_large_is_halved(server: QdrantServer, target: QdrantTarget) -> None:
    documents = {f"d{number}": ["x" * 300] for number in range(20)}
    server.max_bytes = 4_000
    put(target, "D__1", documents, epoch=1, attempt="1")
    assert content(server.url, "D__1") == expected(documents)


def test_a_point_that_is_too_large_keeps_no_other_out(server: QdrantServer, target: QdrantTarget) -> None:
    """Whatever the server's own limit: it is refused when nothing is left to halve."""
    documents = {"a": ["fits"], "b": ["x" * 10_000], "c": ["fits too"]}
    server.max_bytes = 4_000
    base = target.fence("D__1", 1)
    with pytest.raises(TooLarge, match="larger than allowed"):
        replaced(target, "D__1", base, documents)
    assert content(server.url, "D__1") == expected({"a": ["fits"], "c": ["fits too"]})


def test_a_load_goes_without_the_index_of_vectors_and_waits_for_it_in_the_end(
    server: QdrantServer, target: QdrantTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL", 0)
    put(target, "D__1", {"a": ["one"]}, epoch=1, attempt="1")
    assert server.thresholds["D__1"] == 0
    server.busy = 3
    target.maintain("D__1")
    assert server.thresholds["D__1"] == 20_000
    assert server.busy == 0
    target.maintain("D__1")
    assert len(asked(server, "PATCH", "")) == 1


# -- readers and zombies -----------------------------------------------------------------------


def test_a_reader_never_finds_a_document_without_chunks(
    server: QdrantServer, target: QdrantTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each single write. All of its chunks are others than before, as they are with another chunker."""
    put(target, "D__1", {"a": ["old 1", "old 2", "old 3"]}, epoch=1, attempt="1")
    base = target.fence("D__1", 2)
    writer = target.writer("D__1", base)
    rows = rows_of({"other ids": ["new 1", "new 2"]}, epoch=2)
    place = rows.schema.get_field_index("document_id")
    rows = rows.set_column(place, rows.schema.field(place), pa.array(["a"] * 2))
    seen: list[set[str]] = []

    def look() -> None:
        found, _ = server.local.scroll("D__1", limit=100)
        seen.append({each.payload["text"] for each in found if each.payload})

    monkeypatch.setattr(collections, "REQUEST_ROWS", 1)
    monkeypatch.setattr(writing, "_REMOVED_AT_ONCE", 1)
    server.after = look
    writer.stage(iter([ChunkChanges(rows, writer.existing(["a"]))]))
    server.after = None
    old, new = {"old 1", "old 2", "old 3"}, {"new 1", "new 2"}
    assert len(seen) == 5
    assert all(each >= old or each >= new for each in seen)
    assert seen[-1] == new


def test_a_zombie_between_its_check_and_its_write(
    server: QdrantServer, target: QdrantTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It overwrites nothing and removes nothing of a newer epoch. What that has deleted it brings back, until the
    document is compared again.
    """
    put(target, "D__1", {"kept": ["old 1", "old 2"], "deleted": ["old"]}, epoch=1, attempt="1")
    base = target.fence("D__1", 1)
    zombie = target.writer("D__1", base)
    changes = ChunkChanges(rows_of({"kept": ["zombie"], "deleted": ["zombie"]}), zombie.existing(["kept", "deleted"]))
    after: Documents = {"kept": ["new 1", "new 2"], "deleted": []}
    upsert = ServerCollections.upsert

    def late(self: ServerCollections, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(ServerCollections, "upsert", upsert)
        put(target, "D__1", after, epoch=2, attempt="2")
        upsert(self, *args, **options)

    monkeypatch.setattr(ServerCollections, "upsert", late)
    staged = zombie.stage(iter([changes]))
    with pytest.raises(Fenced):
        target.commit("D__1", base=base, epoch=1, attempt="zombie", staged=[staged], marks=[])
    assert content(server.url, "D__1") == expected({**after, "deleted": ["zombie"]})
    put(target, "D__1", after, epoch=3, attempt="3")
    assert content(server.url, "D__1") == expected(after)


# -- outages and refusals ----------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(calls, "_LONGEST_WAIT", 0.001)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("trouble", [(429, {"Retry-After": "1"}), (429, {}), (500, {}), (503, {}), None])
def test_transient_errors_are_retried(server: QdrantServer, target: QdrantTarget, trouble: Any) -> None:
    base = target.fence("D__1", 1)
    writer = target.writer("D__1", base)
    server.answers = [trouble] * 2
    staged = writer.stage(iter([ChunkChanges(rows_of({"a": ["one"]}), NOTHING)]))
    server.answers = [trouble] * 3
    target.commit("D__1", base=base, epoch=1, attempt="1", staged=[staged], marks=[Mark("s", 1, b"x")])
    assert target.committed("D__1", base, ["s"]) == {"s": b"x"}
    assert content(server.url, "D__1") == expected({"a": ["one"]})


@pytest.mark.usefixtures("quick")
def test_a_lasting_server_error_is_transient(server: QdrantServer, target: QdrantTarget) -> None:
    server.answers = [(503, {})] * 5
    with pytest.raises(Transient, match="503"):
        target.rows("D__1")
    assert len(server.requests) == 5


@pytest.mark.usefixtures("quick")
def test_a_server_that_does_not_listen_is_away() -> None:
    with pytest.raises(Away, match=r"127\.0\.0\.1:9"):
        QdrantTarget("http://127.0.0.1:9", "sesame").check()


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_refused_request_is_not_retried(server: QdrantServer, target: QdrantTarget, status: int) -> None:
    server.answers = [(status, {})] * 2
    with pytest.raises(UserError, match="as told"):
        target.rows("D__1")
    assert len(server.requests) == 1


def test_the_key_is_sent_and_never_shown(server: QdrantServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.api_key = "s3same"
    target = QdrantTarget(server.url, "s3same")
    pickle.loads(pickle.dumps(target)).check()
    assert "s3same" not in repr(target) + repr(target.collections)
    with pytest.raises(UserError) as refused:
        QdrantTarget(server.url, "abracadabra").check()
    assert "abracadabra" not in str(refused.value)
    monkeypatch.setattr(server, "act", mock.Mock(side_effect=ValueError("of no use: s3same")))
    with pytest.raises(UserError, match=r"of no use: \*\*\*"):
        target.rows("D__1")


@pytest.mark.usefixtures("quick")
def test_a_check_leaves_nothing_behind_though_the_answer_to_its_probe_is_lost(server: QdrantServer) -> None:
    before = server.local.get_collections()
    server.lost = "PUT"
    with pytest.raises(Away):
        QdrantTarget(server.url, None).check()
    assert server.local.get_collections() == before


def test_a_key_that_may_only_read_does_not_pass_the_check(server: QdrantServer) -> None:
    server.read_only = True
    with pytest.raises(UserError, match="Qdrant refuses: Forbidden"):
        QdrantTarget(server.url, None).check()
    server.read_only = False
    QdrantTarget(server.url, None).check()
    assert server.local.get_collections().collections == [], "nothing is left of it"


def test_old_servers(server: QdrantServer, target: QdrantTarget) -> None:
    target.check()
    server.version = "1.19.2"
    target.check()
    with pytest.raises(UserError, match=r"1\.20 can"):
        target.search("D__1", entity="D", text=text_query("x"), vector=None, mode="text", limit=1)
    server.version = "1.15.5"
    with pytest.raises(UserError, match=r"Use Qdrant 1\.16"):
        target.check()
