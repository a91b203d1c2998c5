"""`domain.manifest.difference` over columns: no Python object for a document that has not changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns, ListedColumns
from instep.document_state.identities import routed
from instep.domain.identity import renamed
from instep.domain.manifest import GONE, LEFT_UNREAD, UNREAD, Action, Difference, DocumentChange

Flags: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.int64]
#: Of Arrow, whose stubs miss much.
Column: TypeAlias = Any

#: What is compared of each recorded document.
RECORDED: Final = ("uri", "size", "version", "chunks")
#: What is needed besides of each that has changed.
ENTRY: Final = ("document_id", "uri", "size", "document_hash")

_TEXT: Final = pa.dictionary(pa.int8(), pa.string())
CHANGES: Final = pa.schema(
    [
        pa.field("action", _TEXT),
        pa.field("document_id", pa.string()),
        pa.field("uri", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("version", pa.string()),
        pa.field("bucket", pa.int32()),
        pa.field("previous_hash", pa.string()),
        pa.field("reason", _TEXT),
        pa.field("locator", pa.string()),
    ]
)

_SIZED: Final[list[tuple[str, pa.DataType]]] = [("uri", pa.string()), ("size", pa.int64()), ("version", pa.string())]
_LISTED: Final = pa.schema([*_SIZED, ("locator", pa.string())])
_RECORDED: Final = pa.schema([*_SIZED, ("chunks", pa.int64())])

_ACTIONS: Final = [str(each) for each in Action]
_INSERT, _UPDATE, _DELETE, _RETRY = (np.int8(_ACTIONS.index(each)) for each in Action)
_TOLD: Final = "deleted by the source"
_REASONS: Final = [
    "new",
    "touched",
    "size changed",
    "failed before; retry asked",
    LEFT_UNREAD,
    "failed before; changed since",
    _TOLD,
    f"failed before; {_TOLD}",
    GONE,
    f"failed before; {GONE}",
]
_NEW, _TOUCHED, _RESIZED, _ASKED, _UNREAD, _SINCE, *_DELETED = (np.int8(at) for at in range(len(_REASONS)))


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an instance: the columns `RECORDED` of all documents, and the columns `ENTRY` of those with
    these URIs, as far as they are still there.
    """

    columns: pa.Table
    entries: Callable[[pa.Array[Any]], pa.Table]

    @classmethod
    def nothing(cls) -> Record:
        empty = _RECORDED.empty_table()
        return cls(empty, lambda _: empty)

    def named_as(self, listed: ListedColumns) -> Record:
        """As `identity.as_named_now` has it. Entries have the names that they had."""
        mine = self.columns["uri"]
        uris = named_now(mine, listed.table["uri"])
        return self if uris is mine else Record(self.columns.set_column(0, "uri", uris), self.entries)


def named_now(mine: Column, theirs: Column) -> Column:
    """The URIs of documents as others name them: see `identity.renamed`. The very same column if none has another."""
    went = mine.filter(pc.invert(pc.is_in(mine, value_set=theirs)))
    came = theirs.filter(pc.invert(pc.is_in(theirs, value_set=mine)))
    if not (len(went) and pc.any(pc.match_substring_regex(came, "^(file|project):///")).as_py()):
        return mine
    names = renamed(went.to_pylist(), came.to_pylist())
    return pa.array([names.get(uri, uri) for uri in mine.to_pylist()], pa.string()) if names else mine


def difference(
    listed: ListedColumns,
    recorded: Record,
    failed: Mapping[str, str],
    *,
    complete: bool,
    buckets: int,
    deleted: Sequence[str] = (),
    retry_failures: bool = False,
) -> Difference:
    """See `domain.manifest.difference`; the two are the same, but for the order of deletes among themselves."""
    table, known = listed.table, recorded.columns
    aligned = table["uri"].equals(known["uri"])
    if aligned and not (failed or deleted) and _as_recorded(table, known):
        return Difference(ChangeColumns(CHANGES.empty_table()), len(known), 0, len(known), 0, 0)
    if not (len(known) or failed or deleted):
        return Difference(_assembled([_all_new(table)], recorded, buckets), 0, 0, 0, 0, 0)
    entry = np.arange(len(known)) if aligned else places(table["uri"], known["uri"])
    there, sizes = entry >= 0, _numbers(table["size"])
    of_entry = np.where(there, entry, 0)

    def recorded_as(name: str) -> npt.NDArray[np.int64]:
        values = _numbers(known[name])
        if aligned:
            return values
        return values[of_entry] if len(values) else of_entry

    if aligned:  # As a rule nothing has come or gone, and both are in the order of the URIs.
        same_version = _flags(pc.equal(table["version"], known["version"]))
    else:
        same_version = _equal(table["version"], known["version"], entry)
    resized = there & (sizes >= 0) & (sizes != recorded_as("size"))
    emptied = there & (recorded_as("chunks") > 0) & (sizes == 0) & ~same_version

    failures = _Failed(failed)
    failure = places(table["uri"], failures.uris)
    has_failed = failure >= 0
    same_failure = _equal(table["version"], failures.versions, failure)
    waiting = has_failed & same_failure & (not retry_failures)
    changed = (has_failed & ~waiting) | (~has_failed & (~there | ~same_version | resized))

    action = np.full(len(entry), _INSERT)
    reason = np.full(len(entry), _NEW)
    action[there], reason[there] = _UPDATE, _TOUCHED
    reason[resized] = _RESIZED
    action[has_failed], reason[has_failed] = _RETRY, _SINCE
    reason[has_failed & failures.unread(failure)] = _UNREAD
    reason[same_failure] = _ASKED

    seen, failure_seen = _places_flagged(len(known), entry), _places_flagged(len(failed), failure)
    removed = _Removed(known, failures)
    told: Column = pc.unique(pa.array(deleted, pa.string()))
    told = told.filter(pa.array(places(told, table["uri"]) < 0))
    removed.add(places(told, known["uri"]), places(told, failures.uris), *_DELETED[:2])
    gone = lost = 0
    if complete:
        seen[removed.entries()] = True
        failure_seen[removed.failures()] = True
        missing = np.flatnonzero(~seen)
        only_failed = np.flatnonzero(~failure_seen & (places(failures.uris, known["uri"]) < 0))
        removed.add(missing, np.full(len(missing), -1), *_DELETED[2:])
        removed.add(np.full(len(only_failed), -1), only_failed, *_DELETED[2:])
        gone, lost = len(missing) + len(only_failed), len(missing)

    at = np.flatnonzero(changed)
    rows = table if len(at) == table.num_rows else table.take(_indices(at))
    listed_part = _Part(rows, action[at], reason[at], entry[at])
    return Difference(
        _assembled([listed_part, *removed.parts], recorded, buckets),
        int(np.count_nonzero(there & ~has_failed & ~changed)),
        int(np.count_nonzero(waiting)),
        known.num_rows,
        gone,
        int(np.count_nonzero(emptied)) + lost,
    )


def change_columns(changes: Sequence[DocumentChange]) -> ChangeColumns:
    """The same changes in columns."""
    values = zip(*changes, strict=True) if changes else ((),) * len(CHANGES)
    columns = [pa.array(column, field.type) for column, field in zip(values, CHANGES, strict=True)]
    return ChangeColumns(pa.Table.from_arrays(columns, schema=CHANGES))


def _as_recorded(table: pa.Table, known: pa.Table) -> bool:
    """Whether nothing has changed of documents that are listed as they are recorded. Makes no column of numbers."""
    sizes: Column = table["size"]
    estimated: Column = pc.less(sizes, pa.scalar(0))
    same: Column = pc.or_(estimated, pc.equal(sizes, known["size"]))
    return table["version"].equals(known["version"]) and pc.all(same, min_count=0).as_py() is True


@dataclass(frozen=True, slots=True)
class _Part:
    """Some changes: what is said of them, in the columns of a listing, and their places among what is recorded."""

    rows: pa.Table
    action: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]
    entry: Places


class _Failed:
    """Documents that failed, and at which version."""

    def __init__(self, failed: Mapping[str, str]) -> None:
        self.uris: Column = pa.chunked_array([pa.array(list(failed), pa.string())])
        self.versions: Column = pa.chunked_array([pa.array(list(failed.values()), pa.string())])

    def unread(self, places: Places) -> Flags:
        unread = _flags(pc.equal(self.versions, pa.scalar(UNREAD)))
        return (places >= 0) & (unread[np.where(places >= 0, places, 0)] if len(unread) else False)


class _Removed:
    """Deletes: those of recorded documents, each time before those of documents that only failed."""

    def __init__(self, known: pa.Table, failures: _Failed) -> None:
        self._known, self._failures = known, failures
        self.parts: list[_Part] = []
        self._entries, self._failed = [np.empty(0, np.int64)], [np.empty(0, np.int64)]

    def add(self, entry: Places, failure: Places, reason: np.int8, reason_of_failures: np.int8) -> None:
        """Add deletions of the documents at these places, -1 being none."""
        of_entries, of_failures = entry[entry >= 0], failure[(entry < 0) & (failure >= 0)]
        if len(of_entries):
            rows = self._known.select(["uri", "size", "version"]).take(_indices(of_entries))
            self._add(rows, reason, of_entries)
        if len(of_failures):
            at = _indices(of_failures)
            columns = [self._failures.uris.take(at), pa.repeat(0, len(at)), self._failures.versions.take(at)]
            rows = pa.table(dict(zip(("uri", "size", "version"), columns, strict=True)))
            self._add(rows, reason_of_failures, np.full(len(at), -1))
        self._entries.append(of_entries)
        self._failed.append(failure[failure >= 0])

    def entries(self) -> Places:
        return np.concatenate(self._entries)

    def failures(self) -> Places:
        return np.concatenate(self._failed)

    def _add(self, rows: pa.Table, reason: np.int8, entry: Places) -> None:
        count = rows.num_rows
        rows = rows.append_column("locator", pa.repeat("", count))
        self.parts.append(_Part(rows, np.full(count, _DELETE), np.full(count, reason), entry))


def _all_new(table: pa.Table) -> _Part:
    """The changes of a first build: nothing is compared, and no column of numbers is made."""
    count = table.num_rows
    return _Part(table, np.full(count, _INSERT), np.full(count, _NEW), np.broadcast_to(np.int64(-1), count))


def _assembled(parts: Sequence[_Part], recorded: Record, buckets: int) -> ChangeColumns:
    rows = pa.concat_tables([each.rows.cast(_LISTED) for each in parts])
    entry = np.concatenate([each.entry for each in parts]) if len(parts) > 1 else parts[0].entry
    sizes = _numbers(rows["size"])
    ids: Column = pa.nulls(len(entry), pa.string())
    hashes: Column = pa.repeat("", len(entry))
    if np.any(entry >= 0):
        wanted: Column = recorded.columns["uri"].take(_indices(entry)).combine_chunks()
        found: Any = recorded.entries(pc.unique(pc.drop_null(wanted)))
        at = places(wanted, found["uri"])
        estimated = (sizes < 0) & (at >= 0)
        sizes = np.where(estimated, _numbers(found["size"].take(_indices(at)).fill_null(0)), sizes)
        hashes = found["document_hash"].take(_indices(at)).fill_null("")
        ids = found["document_id"].take(_indices(at))
    routes, order = routed(ids, rows["uri"], buckets)
    columns = [
        _coded([each.action for each in parts], _ACTIONS),
        ids,
        rows["uri"],
        pa.array(np.abs(sizes)),
        rows["version"],
        pa.array(routes),
        hashes,
        _coded([each.reason for each in parts], _REASONS),
        rows["locator"],
    ]
    return ChangeColumns(pa.Table.from_arrays(columns, schema=CHANGES), order)


def places(values: Column, among: Column) -> Places:
    """The first place of each value among others; -1 where it is not there."""
    if not len(among) or not len(values):
        return np.full(len(values), -1, np.int64)
    found: Any = pc.index_in(values, value_set=among)
    return _numbers(found.fill_null(-1))


def _places_flagged(count: int, places: Places) -> Flags:
    """Flags of so many places: those that are among these."""
    flags = np.zeros(count, bool)
    flags[places[places >= 0]] = True
    return flags


def _indices(places: Places) -> Any:
    """For `take`, which gives a null for a place that is none."""
    return pa.array(places, mask=places < 0 if np.any(places < 0) else None)


def _equal(values: Column, others: Column, places: Places) -> Flags:
    """Whether each value is the same as that at its place among others."""
    if not len(others):
        return np.zeros(len(values), bool)
    return _flags(pc.equal(values, others.take(_indices(places))).fill_null(False))


def _numbers(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(), np.int64)


def _flags(column: Any) -> Flags:
    return np.asarray(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), bool
    )


def _coded(codes: Sequence[npt.NDArray[np.int8]], texts: Sequence[str]) -> Any:
    places: Any = pa.array(np.concatenate(codes))
    return pa.DictionaryArray.from_arrays(places, pa.array(texts))
