"""Writing: partitions, concurrent readers, requests that are too large, and zombies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.identity import bucket_of
from instep.domain.waves import Mark
from instep.domain.words import text_query
from instep.errors import Fenced, InstepError, UserError
from instep.targets.document_target import ChunkChanges
from instep.targets.milvus import staging
from instep.targets.milvus.location import Location, TooLarge
from instep.targets.milvus.target import MilvusTarget
from instep.testing.target_rows import BUCKETS, DIMENSIONS, NOTHING, Documents, expected, put, replaced, rows_of
from tests.targets.milvus.reading import content
from tests.targets.milvus.watching import watch

DOCUMENTS = {f"d{number}": [f"text {number}", f"more {number}"] for number in range(40)}


@pytest.fixture
def target(embedded: MilvusTarget) -> MilvusTarget:
    embedded.create("D", DIMENSIONS, BUCKETS)
    return embedded


def test_rows_are_in_the_partition_of_their_route_bucket(target: MilvusTarget) -> None:
    put(target, "D", DOCUMENTS, epoch=1, attempt="1")
    put(target, "D", {"d0": ["changed"], "d1": [], "d2": ["a", "b", "c"]}, epoch=2, attempt="2")
    wanted = DOCUMENTS | {"d0": ["changed"], "d1": [], "d2": ["a", "b", "c"]}
    place = Location(target.uri)
    assert sorted(place.call("list_partitions", "D")) == ["_default", *(f"bucket_{number}" for number in range(4))]
    for number in range(BUCKETS):
        found = place.call("query", "D", filter='chunk_id != ""', partition_names=[f"bucket_{number}"])
        mine = {name: texts for name, texts in wanted.items() if bucket_of(name, BUCKETS) == number}
        assert sorted((each["document_id"], each["text"]) for each in found) == sorted(expected(mine).elements())
        assert mine


def test_an_index_keeps_the_partitions_that_it_was_made_with(target: MilvusTarget) -> None:
    """Whatever the project says now: its rows stay where they are found."""
    put(target, "D", DOCUMENTS, epoch=1, attempt="1")
    other = MilvusTarget(target.uri, None, "other")
    other.create("D", DIMENSIONS, 2 * BUCKETS)
    put(other, "D", {name: ["changed"] for name in DOCUMENTS}, epoch=2, attempt="2")
    assert content(other, "D") == expected({name: ["changed"] for name in DOCUMENTS})
    assert len(Location(target.uri).call("list_partitions", "D")) == 1 + BUCKETS


@pytest.mark.parametrize("call", range(12))
def test_an_index_that_was_half_made_is_made_whole(
    embedded: MilvusTarget, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    left = [call]

    def before(method: str, said: dict[str, Any]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise InstepError("killed")

    watch(monkeypatch, before)
    with pytest.raises(InstepError, match="killed"):
        embedded.create("D", DIMENSIONS, BUCKETS)
    monkeypatch.undo()
    embedded.create("D", DIMENSIONS, BUCKETS)
    put(embedded, "D", DOCUMENTS, epoch=1, attempt="1")
    assert content(embedded, "D") == expected(DOCUMENTS)
    assert (
        embedded.search("D", entity="D", text=text_query("more 7"), vector=None, mode="text", limit=1)[0].document_id
        == "d7"
    )


def test_a_document_is_never_seen_without_any_of_its_chunks(
    target: MilvusTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at before and after every call of a run that leaves no chunk of any document as it was."""
    monkeypatch.setattr(staging, "REQUEST_ROWS", 3)
    monkeypatch.setattr(staging, "_FILTER_IDS", 3)
    before = {f"d{number}": [f"old {number}-{part}" for part in range(4)] for number in range(6)}
    put(target, "D", before, epoch=1, attempt="1")
    looks, calls = [], []

    def look(method: str = "", said: dict[str, Any] | None = None) -> None:
        calls.append(method)
        looks.append({document for document, _ in content(target, "D")})

    base = target.fence("D", 2)
    writer = target.writer("D", base)
    stale = writer.existing(list(before))
    after = {name: ["new 1", "new 2"] for name in before}
    rows = _with_other_ids(rows_of(after, epoch=2))
    watch(monkeypatch, look)
    writer.stage(iter([ChunkChanges(rows, stale)]))
    target.commit("D", base=base, epoch=2, attempt="2", staged=[], marks=[])
    look()
    assert calls.count("upsert") > 4
    assert calls.count("delete") > 4
    assert looks == [set(before)] * len(looks)
    assert content(target, "D") == expected(after)


def _with_other_ids(rows: pa.RecordBatch) -> pa.RecordBatch:
    """As another chunker gives them."""
    ids = pa.array([f"other {each}" for each in rows["chunk_id"].to_pylist()], pa.string())
    return rows.set_column(rows.schema.get_field_index("chunk_id"), rows.schema.field("chunk_id"), ids)


def test_requests_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of({"a": ["x" * size for size in (10, 5_000, 10, 900, 900, 10, 10)]})
    monkeypatch.setattr(staging, "REQUEST_BYTES", 4_000)
    monkeypatch.setattr(staging, "REQUEST_ROWS", 2)
    assert [each.num_rows for each in staging.requests(rows)] == [1, 1, 2, 2, 1]
    assert list(staging.requests(rows.slice(0, 0))) == []


def test_large_writes_and_reads_go_in_several_requests(target: MilvusTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing and reading."""

    def before(method: str, said: dict[str, Any]) -> None:
        if said["collection"] == "D":
            upsert = method == "upsert" and len(said["data"][0]) > 3
            query = method == "query" and said["filter"].count('"') > 2 * 5
            if upsert or query:
                raise TooLarge("Received message larger than max (70000000 vs. 67108864)")

    watch(monkeypatch, before)
    put(target, "D", DOCUMENTS, epoch=1, attempt="1")
    put(target, "D", {name: ["less"] for name in DOCUMENTS}, epoch=2, attempt="2")
    monkeypatch.undo()
    assert content(target, "D") == expected({name: ["less"] for name in DOCUMENTS})


def test_a_row_that_is_too_large_by_itself_is_named(target: MilvusTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def before(method: str, said: dict[str, Any]) -> None:
        if said["collection"] == "D" and method == "upsert":
            raise TooLarge("message larger than max")

    watch(monkeypatch, before)
    with pytest.raises(UserError, match="a chunk of d0 is too large for Milvus"):
        put(target, "D", {"d0": ["a", "b"]}, epoch=1, attempt="1")


def test_texts_that_do_not_fit_are_reported_before_anything_is_written(target: MilvusTarget) -> None:
    """By their bytes, as Milvus counts them."""
    texts = ["x" * 65_535, "x" * 65_536, "ü" * 32_767, "ü" * 32_768]
    rows = pa.Table.from_batches([rows_of({"a": texts})])
    writer = target.writer("D", target.fence("D", 1))
    assert writer.unfit(rows.drop(["vector"])) == {
        1: "text of 65,536 bytes: Milvus takes 65,535",
        3: "text of 65,536 bytes: Milvus takes 65,535",
    }
    put(target, "D", {"a": [texts[0], texts[2]]}, epoch=1, attempt="1")
    assert content(target, "D") == expected({"a": [texts[0], texts[2]]})


@pytest.mark.parametrize("where", ["embedded", "served"])
def test_a_zombie_stops_at_its_next_request(request: pytest.FixtureRequest, where: str) -> None:
    """It was taken over between two requests: its rows are replaced by the new holder."""
    target: MilvusTarget = request.getfixturevalue(where)
    target.create("D", DIMENSIONS, BUCKETS)
    put(target, "D", {"a": ["old"], "b": ["old", "old too"]}, epoch=1, attempt="0")
    zombie = target.writer("D", target.fence("D", 2))
    stale = zombie.existing(["a", "b"])
    mine: Documents = {"a": ["theirs", "theirs too"], "b": ["theirs"]}

    def changes() -> Iterator[ChunkChanges]:
        yield ChunkChanges(rows_of({"a": ["zombie", "zombie 2", "zombie 3"]}, epoch=2), NOTHING)
        base = target.fence("D", 3)
        staged = replaced(target, "D", base, mine, epoch=3)
        target.commit("D", base=base, epoch=3, attempt="3", staged=[staged], marks=[Mark("s", 3, b"")])
        yield ChunkChanges(rows_of({"b": ["zombie"]}, epoch=2), stale)

    with pytest.raises(Fenced):
        zombie.stage(changes())
    assert content(target, "D") == expected(mine)


@pytest.mark.parametrize(("method", "removed"), [("upsert", []), ("delete", []), ("delete", ["a"])])
def test_a_zombie_between_its_look_and_its_request_is_undone_by_any_replay(
    served: MilvusTarget, method: str, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing keeps a server from taking what was sent before and comes late."""
    served.create("D", DIMENSIONS, BUCKETS)
    put(served, "D", {"a": ["old", "old 2"], "b": ["b"]}, epoch=1, attempt="0")
    base = served.fence("D", 2)
    mine: Documents = {"a": ["mine", "mine 2"], "b": ["b"]}

    def before(called: str, said: dict[str, Any]) -> None:
        if called == method and said["collection"] == "D":
            put(served, "D", mine, epoch=3, attempt="3")

    watch(monkeypatch, before)
    zombie = served.writer("D", base)
    rows = rows_of({"a": ["zombie"]} if method == "upsert" else {}, epoch=2)
    with suppress(Fenced):
        zombie.stage(iter([ChunkChanges(rows, zombie.existing(["a"]), removed)]))
    monkeypatch.undo()
    with pytest.raises(Fenced):
        served.commit("D", base=base, epoch=2, attempt="2", staged=[], marks=[])
    # A delete leaves what is newer than the zombie; a row that is written has no such condition.
    assert content(served, "D") == expected(mine if method == "delete" else {**mine, "a": ["zombie", "mine 2"]})
    put(served, "D", mine, epoch=4, attempt="4")
    assert content(served, "D") == expected(mine)
