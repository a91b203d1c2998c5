"""Follow a table that keeps its versions: a refresh compares what was changed since the last one, and no other rows. Of
tables that keep none, files may tell that nothing was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from instep.document_state.columns import FEW, ListedColumns
from instep.domain.jobs import JobPart
from instep.domain.manifest import UNREAD, Difference, unchanged
from instep.domain.seen import Seen
from instep.domain.table_versions import Between, TableVersion, Unfollowable
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.overtaken import overtaken
from instep.entities.plan_request import Kind, PlanRequest
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing
from instep.sources.tables.row_documents import ChangedRows, RowDocuments, is_flaw

if TYPE_CHECKING:
    from instep.document_state.difference import Record

#: A table of which nothing was changed.
NOTHING_LISTED: Final = Listing((), [], exhaustive=False)
_SHARED: Final = "rows were changed that share their key with others"


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table that is followed, at the version that it has `now`. `listing` has what was changed since `before`, the
    version of the last run, and `record` what is recorded of that; without them all rows are to be compared, and
    `why_all` says why if that costs more than it should. `note` is about the way in which changes are read.
    """

    now: TableVersion
    before: TableVersion | None
    listing: Listing | None = None
    record: Record | None = None
    why_all: str | None = None
    note: str | None = None
    unit: str = "version"

    @property
    def moved(self) -> bool:
        return not self.now.same(self.before)

    @property
    def why(self) -> str:
        """The reason of a refresh."""
        if self.before is None:
            return f"it is not known at which {self.unit} its table was read: all rows were compared"
        if self.listing is None:
            return f"all rows were compared: {self.why_all}"
        return f"its table went from {self.unit} {self.before.number} to {self.now.number}"

    @property
    def warnings(self) -> list[str]:
        said = [f"warning: all rows were compared: {self.why_all}"] if self.why_all else []
        return said + ([f"note: {self.note}"] if self.note else [])


def follow(
    setup: DocumentAdapters, request: PlanRequest, base: str | None, failed: Mapping[str, str], *, retry: bool
) -> FollowedTable | None:
    """The source as seen from what is indexed (`base`); None if it keeps no versions."""
    source = setup.source
    lake = source.lake if isinstance(source, RowDocuments) else None
    if lake is None or not isinstance(source, RowDocuments):
        return None
    # Before anything is read: what comes in between is read once more.
    now, checkpoint = lake.version(), request.checkpoint
    seen = request.ledger.seen.get(checkpoint) if checkpoint and checkpoint.instance == base else None
    before = seen.version if seen else None
    if before and checkpoint and request.kind is Kind.REFRESH and overtaken(setup.target, request.ledger, checkpoint):
        before = None  # The index may have what the table had in between, and has no more.
    found = FollowedTable(now, before, unit=lake.unit)
    if before is None:
        return replace(found, note=lake.note())
    if not found.moved and not failed:
        return replace(found, listing=NOTHING_LISTED)
    try:
        changed = _changed(source, before, now, failed, retry=retry)
        if changed is None:
            return replace(found, listing=NOTHING_LISTED, note=lake.note())
        assert base is not None, "what is known of a table is of an instance"
        record = record_of_touched(request.ledger, base, changed.uris)
        _demand_one_row_each(changed, record, failed)
        return replace(found, listing=changed.listing, record=record, note=lake.note())
    except Unfollowable as why:
        return replace(found, why_all=str(why))


@dataclass(frozen=True, slots=True)
class FilesState:
    """The state of the files `now` of tables that keep no versions: `same`, if it is that of the last run."""

    now: TableVersion
    same: bool

    @property
    def seen(self) -> Seen:
        return Seen(version=self.now)


def files_state(
    setup: DocumentAdapters, request: PlanRequest, base: str | None, failed: Mapping[str, str], *, retry: bool
) -> FilesState | None:
    """The state of the files of the source's tables; None if only their rows tell whether any has changed."""
    now = files_version(setup)
    if now is None:
        return None
    checkpoint, ledger = request.checkpoint, request.ledger
    refreshed = request.kind is Kind.REFRESH and checkpoint is not None and checkpoint.instance == base
    if checkpoint is None or not refreshed or _tries_failures_again(failed, retry=retry):
        return FilesState(now, same=False)
    seen = ledger.seen.get(checkpoint)
    same = seen is not None and now.same(seen.version) and not overtaken(setup.target, ledger, checkpoint)
    return FilesState(now, same)


def files_version(setup: DocumentAdapters) -> TableVersion | None:
    """A version made of the files of tables that keep none; None if they do not tell. Asked before anything is read."""
    source = setup.source
    digest = source.files_digest() if isinstance(source, RowDocuments) and source.lake is None else None
    return None if digest is None else TableVersion.of_files(digest)


def is_built_of(ledger: Ledger, part: JobPart, now: TableVersion, failed: Mapping[str, str]) -> bool:
    """Whether a new instance was planned of files that are in the same state still."""
    planned = ledger.seen.of_instance(part) if part.fresh and not _tries_failures_again(failed, retry=False) else None
    return planned is not None and now.same(planned.version)


def _tries_failures_again(failed: Mapping[str, str], *, retry: bool) -> bool:
    """Whether documents that failed are to be tried again."""
    return bool(failed) and (retry or UNREAD in failed.values())


def changed_since_seen(
    setup: DocumentAdapters, ledger: Ledger, part: JobPart
) -> tuple[Difference, TableVersion] | None:
    """The changes that bring an instance to the version that its table has now, and that; None where nothing was
    changed, or only all rows would tell.
    """
    source, seen = setup.source, ledger.seen.of_instance(part)
    if not isinstance(source, RowDocuments) or source.lake is None or seen is None or seen.version is None:
        return None
    now, failed = source.lake.version(), ledger.failures.versions(part.ref, part.generation)
    try:
        changed = _changed(source, seen.version, now, failed, retry=False)
        if changed is None:
            return None
        record = record_of_touched(ledger, part.instance, changed.uris)
        _demand_one_row_each(changed, record, failed)
    except Unfollowable:
        return None
    followed = FollowedTable(now, seen.version, changed.listing, record)
    return compared_since(ledger, part.instance, followed, failed, buckets=part.buckets), now


def _changed(
    source: RowDocuments, before: TableVersion, now: TableVersion, failed: Mapping[str, str], *, retry: bool
) -> ChangedRows | None:
    """The rows that were changed between two versions; None if nothing was. Raises `Unfollowable`."""
    now.demand_same_table(before)
    if _tries_failures_again(failed, retry=retry):
        raise Unfollowable("documents that failed are tried again")
    lake = source.lake
    assert lake is not None, "asked of a table with versions"
    lake.demand_past(before)
    if now.same(before):
        return None
    changed = source.changed(lake, Between(before.number, now.number))
    flawed = {uri for uri, version in failed.items() if is_flaw(version)}
    if flawed and not flawed.isdisjoint(changed.uris.to_pylist()):
        raise Unfollowable(_SHARED)
    return changed


def _demand_one_row_each(changed: ChangedRows, record: Record, failed: Mapping[str, str]) -> None:
    """Raises `Unfollowable` where a row was changed that has, or had, the key of another one: none of the changes says
    what is left of these. A document that is recorded, or has failed, had one row.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    recorded: Any = record.columns["uri"].combine_chunks()
    had = [pc.is_in(changed.uris, value_set=some) for some in (recorded, pa.array(list(failed), pa.string()))]
    before = pc.or_(*had).to_numpy(zero_copy_only=False).astype(np.int64)
    after = before + changed.more
    if np.any((after > 1) | ((after == 1) & ~changed.there)):
        raise Unfollowable(_SHARED)


def compared_since(
    ledger: Ledger, instance: str, followed: FollowedTable, failed: Mapping[str, str], *, buckets: int
) -> Difference:
    """The difference that these changes make. What they delete counts as gone, as of any other table."""
    found, record = followed.listing, followed.record
    if found is None or record is None:
        return unchanged(0)

    import pyarrow as pa
    import pyarrow.compute as pc

    from instep.document_state.difference import difference

    listed = found.documents
    assert isinstance(listed, ListedColumns), "rows are listed in columns"
    uris: Any = pa.chunked_array([*listed.table["uri"].chunks, pa.array(found.deleted, pa.string())], pa.string())
    known = pa.array(list(failed), pa.string())
    touched = known.filter(pc.is_in(known, value_set=uris.combine_chunks()))
    failures = {str(uri): failed[str(uri)] for uri in touched.to_pylist()}
    changes = difference(listed, record, failures, complete=True, buckets=buckets)
    return replace(changes, recorded=ledger.documents.totals(instance)[0]) if changes.lost else changes


def record_of_touched(ledger: Ledger, instance: str, uris: Any) -> Record:
    """The record of these documents."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from instep.document_state.difference import ENTRY, RECORDED, Record
    from instep.document_state.identities import document_ids

    if len(uris) > FEW:
        columns = ledger.documents.columns(instance, RECORDED)
        touched = columns.filter(pc.is_in(columns["uri"], value_set=uris))
        return Record(touched, lambda some: ledger.documents.named(instance, some, ENTRY))
    ids = [str(each) for each in document_ids(pa.chunked_array([uris])).to_pylist()]
    entries = ledger.documents.with_ids(instance, ids, tuple(dict.fromkeys((*RECORDED, *ENTRY))))
    return Record(
        entries.select(list(RECORDED)),
        lambda some: entries.filter(pc.is_in(entries["uri"], value_set=some)).select(list(ENTRY)),
    )
