"""Listings and records compared in columns: as the rule says that compares them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.document_state import cuts
from instep.document_state.columns import ChangeColumns, listed_columns
from instep.document_state.cuts import cut_columns
from instep.document_state.difference import ENTRY, RECORDED, Record, difference
from instep.domain import manifest
from instep.domain.identity import as_named_now, bucket_of, canonical_uri, document_id
from instep.domain.manifest import UNREAD, Action, Difference, ManifestEntry, SourceDocument
from instep.domain.planning import MAX_SLICES_PER_ENTITY, SLICE_ROWS_MIN, SliceSizing, cut_documents

URIS = [f"file:///docs/{n}.md" for n in range(8)]
VERSIONS = st.sampled_from(["1", "2", UNREAD])

listings = st.lists(
    st.builds(SourceDocument, st.sampled_from(URIS), st.integers(-2, 2), VERSIONS, st.sampled_from(["", "at 1"])),
    max_size=10,
)
records = st.dictionaries(
    st.sampled_from(URIS), st.tuples(st.integers(0, 2), VERSIONS, st.sampled_from(["h1", "h2"]), st.integers(0, 2))
)
failures = st.dictionaries(st.sampled_from(URIS), VERSIONS)
tombstones = st.lists(st.sampled_from(URIS), max_size=6)


def entry(uri: str, size: int, version: str, content: str = "hash", chunks: int = 1) -> ManifestEntry:
    identity = document_id(canonical_uri(uri))
    return ManifestEntry(identity, uri, size, version, content, chunks, bucket_of(identity, 4))


def record(entries: Mapping[str, ManifestEntry]) -> Record:
    def columns(names: Sequence[str]) -> pa.Table:
        kinds = {"size": pa.int64(), "chunks": pa.int64()}
        made = {name: [getattr(each, name) for each in entries.values()] for name in names}
        return pa.table({name: pa.array(made[name], kinds.get(name, pa.string())) for name in names})

    def asked(uris: pa.Array[Any]) -> pa.Table:
        found = columns(ENTRY)
        return found.filter(pc.is_in(found["uri"], value_set=uris))

    return Record(columns(RECORDED), asked)


@given(listings, records, failures, tombstones, st.booleans(), st.booleans(), st.integers(1, 5))
def test_columns_are_compared_as_rows_are(
    listed: list[SourceDocument],
    recorded: dict[str, tuple[int, str, str, int]],
    failed: dict[str, str],
    deleted: list[str],
    complete: bool,
    retry: bool,
    buckets: int,
) -> None:
    entries = {uri: entry(uri, *of_it) for uri, of_it in recorded.items()}
    how: Any = {"complete": complete, "buckets": buckets, "deleted": deleted, "retry_failures": retry}
    by_rows = manifest.difference(listed, entries, failed, **how)
    by_columns = difference(listed_columns(listed), record(entries), failed, **how)
    assert as_rows(by_columns) == by_rows
    assert len(by_columns.changes) == len(by_rows.changes)
    for at, each in enumerate(by_rows.changes):
        assert by_columns.changes[at] == each
    assert list(by_columns.changes[:2]) == list(by_rows.changes[:2])


def as_rows(found: Difference) -> Difference:
    return replace(found, changes=list(found.changes))


@given(listings, records)
def test_an_entry_that_is_gone_by_now_is_written_whatever_it_was(
    listed: list[SourceDocument], recorded: dict[str, tuple[int, str, str, int]]
) -> None:
    """Another process may have deleted it since the columns were read."""
    entries = {uri: entry(uri, *of_it) for uri, of_it in recorded.items()}
    known = record(entries)
    lost = Record(known.columns, lambda uris: known.entries(uris).slice(0, 0))
    expected = difference(listed_columns(listed), known, {}, complete=True, buckets=4)
    found = difference(listed_columns(listed), lost, {}, complete=True, buckets=4)
    assert [(each.action, each.document_id) for each in found.changes] == [
        (each.action, each.document_id) for each in expected.changes
    ]
    assert {each.previous_hash for each in found.changes} <= {""}
    assert (found.gone, found.lost) == (expected.gone, expected.lost)


ODD = [
    "file:///a",
    "file:///a//b",
    "file:////a",
    "FILE:///Ä/%20",
    "project:///../x;y?z#w",
    "https://User:secret@Example.ORG:8080/A?b#c",
    "https://Example.ORG:8080/A",
    "http://[::1]/x",
    "zip:///s3://bucket/a.zip!/docs/x",
    "zip:////a",
    "table://Ticket/4711",
    "table://Ticket/(null)",
    "feed://Note/a%20b",
    "x://h/",
    "x://h",
    "mailto:someone",
    "s3://Bucket/a:b@c",
]


@given(st.lists(st.sampled_from(ODD), unique=True))
def test_documents_have_the_ids_and_buckets_that_their_uris_give_them(uris: list[str]) -> None:
    listed = [SourceDocument(uri, 1, "1") for uri in uris]
    found = difference(listed_columns(listed), Record.nothing(), {}, complete=True, buckets=7)
    assert [each.document_id for each in found.changes] == [document_id(canonical_uri(uri)) for uri in uris]
    assert [each.bucket for each in found.changes] == [bucket_of(each.document_id, 7) for each in found.changes]


NAMES = ["file:///home/p/a.md", "file:///home/p/b.md", "project:///a.md", "project:///b.md", "table://T/1"]


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_documents_that_were_renamed_are_not_lost(served: set[str], now: set[str]) -> None:
    entries = {uri: entry(uri, 1, "1") for uri in sorted(served)}
    listed = [SourceDocument(uri, 1, "1") for uri in sorted(now)]
    by_rows = manifest.difference(listed, as_named_now(entries, sorted(now)), {}, complete=True, buckets=4)
    columns = listed_columns(listed)
    by_columns = difference(columns, record(entries).named_as(columns), {}, complete=True, buckets=4)
    assert (by_columns.gone, by_columns.lost) == (by_rows.gone, by_rows.lost)


@given(
    st.lists(st.tuples(st.integers(0, 10_000_000), st.booleans()), max_size=60),
    st.integers(1, 4),
    st.integers(1, 100_000),
    st.floats(0.1, 10),
)
def test_columns_are_cut_as_rows_are(
    sizes: list[tuple[int, bool]], buckets: int, slice_rows: int, factor: float
) -> None:
    listed = [SourceDocument(f"file:///docs/{n}.md", size, "2") for n, (size, there) in enumerate(sizes) if there]
    entries = {
        each.uri: each for each in (entry(f"file:///docs/{n}.md", size, "1") for n, (size, _) in enumerate(sizes))
    }
    found = difference(listed_columns(listed), record(entries), {}, complete=True, buckets=buckets)
    sizing = SliceSizing(800, slice_rows, factor)
    by_rows, by_columns = cut_documents(list(found.changes), sizing), cut_columns(found.changes, sizing)  # type: ignore[arg-type]  # they are columns
    assert by_columns == [replace(each, payload=b"") for each in by_rows]
    assert [list(each.changes) for each in by_columns] == [each.changes for each in by_rows]


@pytest.mark.parametrize("at_once", [1, 7, 1_000])
def test_slices_have_their_rows_however_many_are_taken_at_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(cuts, "_AT_ONCE", at_once)
    listed = [SourceDocument(f"x://h/{n}", 800, "1") for n in range(3_000)]
    found = difference(listed_columns(listed), Record.nothing(), {}, complete=True, buckets=2)
    sizing = SliceSizing(800, SLICE_ROWS_MIN)
    by_rows, by_columns = cut_documents(list(found.changes), sizing), cut_columns(found.changes, sizing)  # type: ignore[arg-type]  # they are columns
    assert len(by_rows) >= 3
    for each in (*zip(by_rows, by_columns, strict=True), *zip(by_rows[::-1], by_columns[::-1], strict=True)):
        assert list(each[1].changes) == each[0].changes


def test_slices_that_follow_each_other_are_taken_together() -> None:
    listed = [SourceDocument(f"x://h/{n}", 800, "1") for n in range(3_000)]
    found = difference(listed_columns(listed), Record.nothing(), {}, complete=True, buckets=1)
    slices: Any = cut_columns(found.changes, SliceSizing(800, SLICE_ROWS_MIN))  # type: ignore[arg-type]  # they are columns
    assert len({each.changes.table["uri"].chunk(0).buffers()[2].address for each in slices}) == 1 < len(slices)


def test_a_first_build_keeps_less_than_a_hundred_bytes_of_a_document() -> None:
    number = 20_000
    listed = listed_columns(SourceDocument(f"row://Document/{n}/", 200, "1") for n in range(number))
    changes = difference(listed, Record.nothing(), {}, complete=True, buckets=64).changes
    assert isinstance(changes, ChangeColumns)
    assert changes.order is not None
    assert changes.table.nbytes + changes.order.nbytes < 100 * number
    slices: Any = cut_columns(changes, SliceSizing(800, SLICE_ROWS_MIN))
    ids: Any = pa.concat_tables([each.changes.table for each in slices])["document_id"].to_pylist()
    assert sorted(ids) == sorted(each.document_id for each in changes)


@pytest.mark.parametrize("name", ["{}", "doc_{:064d}"], ids=["of other ids", "whose ids begin alike"])
def test_slices_of_documents_are_in_the_order_of_their_ids(name: str) -> None:
    entries = {uri: entry(uri, 1, "1")._replace(document_id=name.format(n)) for n, uri in enumerate(reversed(URIS))}
    found = difference(listed_columns([]), record(entries), {}, complete=True, buckets=1)
    (one,) = cut_columns(found.changes, SliceSizing(800, SLICE_ROWS_MIN))  # type: ignore[arg-type]  # they are columns
    assert [each.document_id for each in one.changes] == [name.format(n) for n in range(len(URIS))]


def test_slices_of_columns_grow_rather_than_pass_the_limit() -> None:
    listed = [SourceDocument(f"x://h/{n}", 800 * SLICE_ROWS_MIN, "1") for n in range(MAX_SLICES_PER_ENTITY + 50)]
    found = difference(listed_columns(listed), Record.nothing(), {}, complete=True, buckets=3)
    slices = cut_columns(found.changes, SliceSizing(800, SLICE_ROWS_MIN))  # type: ignore[arg-type]  # they are columns
    assert MAX_SLICES_PER_ENTITY / 4 < len(slices) <= MAX_SLICES_PER_ENTITY
    assert sum(each.units for each in slices) == len(listed)


def test_a_listing_in_columns_is_a_sequence_of_documents() -> None:
    listed = [SourceDocument(uri, 1, "1", "there") for uri in URIS]
    columns = listed_columns([*listed, listed[0]._replace(version="2")])
    assert list(columns) == listed
    assert (columns[0], columns[-1], list(columns[1:3])) == (listed[0], listed[-1], listed[1:3])
    assert all(
        isinstance(each.action, Action)
        for each in difference(columns, Record.nothing(), {}, complete=True, buckets=1).changes
    )


def test_documents_are_counted_by_the_ends_of_their_uris() -> None:
    listed = [SourceDocument(f"file:///{name}", 1, "1") for name in ("a.docx", "B.DOCX", "docx", "c.docx.md")]
    gone = record({document_id(uri): entry(uri, 1, "1") for uri in ("file:///gone.docx",)})
    found = difference(listed_columns(listed), gone, {}, complete=True, buckets=1).changes
    assert isinstance(found, ChangeColumns)
    assert (found.ending(".docx"), found.ending(".odt"), len(found)) == (2, 0, 5)


def test_sizes_of_changes_are_those_by_which_tasks_are_dealt() -> None:
    listed = [SourceDocument(URIS[0], 7, "1", ""), SourceDocument(URIS[1], 0, "1", "")]
    known = record({URIS[2]: entry(URIS[2], 5, "1")})
    changes = difference(listed_columns(listed), known, {}, complete=True, buckets=4).changes
    assert isinstance(changes, ChangeColumns)
    assert changes.sizes() == [1 if each.action is Action.DELETE else 1 + each.size for each in changes]
    assert sorted(changes.sizes()) == [1, 1, 8]
