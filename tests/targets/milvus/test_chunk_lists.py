"""Milvus Lite in this process finds a document's rows by their ids, and never misses one for it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from instep.domain.identity import bucket_of
from instep.errors import InstepError
from instep.targets.document_target import ChunkChanges
from instep.targets.milvus import chunk_lists, layout, location
from instep.targets.milvus.location import Location
from instep.targets.milvus.staging import records
from instep.targets.milvus.target import MilvusTarget
from instep.testing.target_rows import BUCKETS, DIMENSIONS, NOTHING, Documents, changes_of, expected, put, rows_of
from tests.targets.milvus.reading import content
from tests.targets.milvus.watching import watch

BEFORE: Documents = {f"d{number}": [f"text {number}", f"more {number}", "last"] for number in range(6)}
AFTER: Documents = {"d0": ["less"], "d1": ["text 1", "other", "last", "one more"], "d2": [], "new": ["new"]}


@pytest.fixture
def target(embedded: MilvusTarget) -> MilvusTarget:
    embedded.create("D", DIMENSIONS, BUCKETS)
    return embedded


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the index was asked for."""
    filters: list[str] = []

    def before(method: str, said: dict[str, Any]) -> None:
        if said["collection"] == "D" and "filter" in said:
            filters.append(said["filter"].partition(" in ")[0])

    watch(monkeypatch, before)
    return filters


def has_one(target: MilvusTarget, physical: str = "D") -> bool:
    return location.chunk_lists(physical) in Location(target.uri).call("list_collections")


def add_unlisted(target: MilvusTarget, documents: Documents) -> None:
    """As another writer of the index does."""
    for document, texts in documents.items():
        partition = location.partition("bucket", bucket_of(document, BUCKETS))
        rows = records(rows_of({document: texts}))
        Location(target.uri).call("upsert", "D", rows, partition_name=partition)


def test_rows_are_asked_for_by_their_ids_only(target: MilvusTarget, asked: list[str]) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    put(target, "D", AFTER, epoch=2, attempt="2")
    assert set(asked) == {"chunk_id", ""}  # Nothing: whether any row is there at all.
    assert asked.count("") == 1
    assert content(target, "D") == expected({**BEFORE, **AFTER})


@pytest.mark.proof
def test_rows_left_by_an_interrupted_commit_are_found_by_the_next(
    target: MilvusTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before whichever call that was."""
    more: Documents = {name: [*texts, "grown", "and grown"] for name, texts in BEFORE.items()}
    less: Documents = {**more, "d4": ["only"], "d5": []}
    mended: Documents = {**BEFORE, "d4": ["text 4"], "d5": ["text 5"]}
    calls = 0

    def before(method: str, said: dict[str, Any]) -> None:
        nonlocal calls
        calls -= 1
        if calls == 0:
            raise InstepError("killed")

    seen = set()
    for number in range(1, 100):
        put(target, "D", BEFORE, epoch=1, attempt=f"before {number}")
        calls = number
        watch(monkeypatch, before)
        with suppress(InstepError):
            put(target, "D", less, epoch=1, attempt=f"killed {number}")
        monkeypatch.undo()
        seen.add(frozenset(content(target, "D").items()))
        ended = calls > 0
        put(target, "D", mended, epoch=1, attempt=f"mended {number}")
        assert content(target, "D") == expected(mended)
        if ended:
            break
    assert ended
    assert len(seen) > 3
    assert has_one(target)


def test_chunks_that_stay_as_they_are_stay_listed(target: MilvusTarget) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    longer = rows_of({"d0": [*BEFORE["d0"], "one more"]}, epoch=2)
    target.writer("D", target.fence("D", 2)).stage(iter([ChunkChanges(longer.slice(len(BEFORE["d0"])), NOTHING)]))
    assert target.rows("D") == sum(map(len, BEFORE.values())) + 1
    put(target, "D", AFTER, epoch=3, attempt="3")
    assert content(target, "D") == expected({**BEFORE, **AFTER})


def test_a_document_that_was_removed_and_comes_back(target: MilvusTarget) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    put(target, "D", {name: [] for name in BEFORE}, epoch=2, attempt="2")
    assert chunk_lists.read(Location(target.uri), "D", list(BEFORE)) == dict.fromkeys(BEFORE, frozenset())
    put(target, "D", AFTER, epoch=3, attempt="3")
    put(target, "D", BEFORE, epoch=4, attempt="4")
    assert content(target, "D") == expected({**BEFORE, "new": ["new"]})


def test_a_late_removal_keeps_the_list_of_a_document_that_returned(target: MilvusTarget) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    base = target.fence("D", 1)
    late = target.writer("D", base)
    gone = late.existing(["d0", "d1"], {"d0", "d1"})
    put(target, "D", {"d0": [], "d1": []}, epoch=1, attempt="2")
    put(target, "D", {"d0": [*BEFORE["d0"], "one more"]}, epoch=1, attempt="3")
    late.stage(iter([changes_of({"d0": [], "d1": []}, gone)]))
    listed = chunk_lists.read(Location(target.uri), "D", ["d0", "d1"])
    assert listed is not None
    assert (len(listed["d0"] or ()), listed["d1"]) == (4, frozenset())
    put(target, "D", {"d0": ["less"]}, epoch=1, attempt="4")
    assert content(target, "D") == expected(
        {name: texts for name, texts in BEFORE.items() if name != "d1"} | {"d0": ["less"]}
    )


def test_a_document_of_more_chunks_than_a_list_holds(target: MilvusTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_lists, "_LIST_BYTES", 300)
    many: Documents = {"d0": ["1", "2"], "d1": [f"{number}" for number in range(9)]}
    put(target, "D", many, epoch=1, attempt="1")
    listed = chunk_lists.read(Location(target.uri), "D", ["d0", "d1"])
    assert listed is not None
    assert (len(listed["d0"] or ()), listed["d1"]) == (2, None)
    put(target, "D", {"d0": ["1"], "d1": ["less"]}, epoch=2, attempt="2")
    assert content(target, "D") == expected({"d0": ["1"], "d1": ["less"]})


def test_unlisted_rows_disable_the_lists(target: MilvusTarget, asked: list[str]) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    add_unlisted(target, {"d3": [*BEFORE["d3"], "stranger"]})
    assert target.rows("D") == len(list(expected(BEFORE).elements())) + 1
    assert sum(batch.num_rows for batch in target.contents("D")) == target.rows("D")
    assert not has_one(target)
    put(target, "D", {"d3": BEFORE["d3"]}, epoch=2, attempt="2")
    assert content(target, "D") == expected(BEFORE)
    assert "document_id" in asked


def test_rows_that_are_gone_since_they_were_read_are_no_strangers(target: MilvusTarget) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    chunk_lists.check(Location(target.uri), "D", rows_of({"gone": ["gone"], **BEFORE}))
    assert has_one(target)


def test_an_index_of_an_earlier_version_has_none(target: MilvusTarget) -> None:
    chunk_lists.forget(Location(target.uri), "D")
    put(target, "D", BEFORE, epoch=1, attempt="1")
    target.create("D", DIMENSIONS, BUCKETS)
    assert not has_one(target)
    put(target, "D", AFTER, epoch=2, attempt="2")
    target.maintain("D")
    assert content(target, "D") == expected({**BEFORE, **AFTER})


def test_a_chunk_that_went_to_another_document_is_of_that_one(target: MilvusTarget) -> None:
    """A transform may do that."""
    rows = rows_of({"a": ["1"]})
    put(target, "D", {"a": ["1"]}, epoch=1, attempt="1")
    moved = rows.set_column(0, rows.schema.field(0), ["b"])
    writer = target.writer("D", target.fence("D", 2))
    chunk_lists.add(Location(target.uri), "D", moved)
    Location(target.uri).call("upsert", "D", records(moved), partition_name=location.partition("bucket", 0))
    assert writer.existing(["a"]).num_rows == 0
    assert Counter(writer.existing(["a", "b"])["document_id"].to_pylist()) == {"b": 1}


def test_the_lists_are_dropped_with_its_index(target: MilvusTarget) -> None:
    put(target, "D", BEFORE, epoch=1, attempt="1")
    assert has_one(target)
    target.drop("D")
    assert Location(target.uri).call("list_collections") == [location.STATE]


def test_a_server_trusts_none(served: MilvusTarget) -> None:
    """Others may write there at the same time. This index was made in process."""
    served.create("D", DIMENSIONS, BUCKETS)
    place = Location(served.uri, served.token)
    assert not has_one(served)
    layout.make(place, location.chunk_lists("D"), chunk_lists._schema())
    put(served, "D", BEFORE, epoch=1, attempt="1")
    assert not has_one(served)
    put(served, "D", AFTER, epoch=2, attempt="2")
    assert content(served, "D") == expected({**BEFORE, **AFTER})
