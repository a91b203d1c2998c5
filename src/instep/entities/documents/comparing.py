"""Compare a listing with the record of an instance: in columns, or one by one where that is quicker.

Arrow is imported for what came in columns (rows of tables, long listings) and for what is long. A short listing of
files is compared without it: a run that finds nothing to do takes half as long.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from instep.document_state.columns import FEW, ChangeColumns, ListedColumns, listed_columns
from instep.domain.identity import as_named_now
from instep.domain.jobs import SlicePlan
from instep.domain.manifest import Action, Difference, DocumentChange, difference, same, unchanged
from instep.domain.planning import SliceSizing, cut_documents
from instep.entities.plan_request import Planned
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing

if TYPE_CHECKING:
    from instep.document_state.difference import Record


def compared(
    ledger: Ledger,
    instance: str | None,
    found: Listing,
    failed: Mapping[str, str],
    *,
    buckets: int,
    retry_failures: bool = False,
) -> tuple[Listing, Difference]:
    """What has changed since an instance was recorded (None: nothing is), and the listing as seen from there."""
    listed = _columns(found)
    if listed is not None:
        from instep.document_state import difference as columns

        recorded = _record(ledger, instance)
        found = _seen_from(found, recorded)
        return found, columns.difference(
            listed,
            recorded,
            failed,
            complete=_tells_all(found),
            buckets=buckets,
            deleted=found.deleted,
            retry_failures=retry_failures,
        )
    if instance and not failed and not found.deleted and same(found.documents, ledger.documents.versions(instance)):
        return found, unchanged(len(found.documents))
    entries = ledger.documents.entries(instance) if instance else {}
    found = found.seen_from(entries)
    return found, difference(
        found.documents,
        entries,
        failed,
        complete=_tells_all(found),
        buckets=buckets,
        deleted=found.deleted,
        retry_failures=retry_failures,
    )


def left_out(ledger: Ledger, instance: str, found: Listing, *, buckets: int) -> tuple[Listing, Difference]:
    """What a build of all that is listed would leave out of what an instance holds. A document that was only renamed is
    not left out.
    """
    listed = _columns(found)
    if listed is not None:
        from instep.document_state import difference as columns

        recorded = _record(ledger, instance)
        found = _seen_from(found, recorded)
        served = recorded.named_as(listed)
        return found, columns.difference(listed, served, {}, complete=True, buckets=buckets, deleted=found.deleted)
    entries = ledger.documents.entries(instance)
    found = found.seen_from(entries)
    names = as_named_now(entries, [each.uri for each in found.documents])
    return found, difference(found.documents, names, {}, complete=True, buckets=buckets, deleted=found.deleted)


def _tells_all(found: Listing) -> bool:
    """Whether what is not listed is gone."""
    return found.complete and found.exhaustive


def _columns(found: Listing) -> ListedColumns | None:
    if isinstance(found.documents, ListedColumns):
        return found.documents
    return listed_columns(found.documents) if len(found.documents) > FEW else None


def _record(ledger: Ledger, instance: str | None) -> Record:
    from instep.document_state.difference import ENTRY, RECORDED, Record

    if instance is None:
        return Record.nothing()
    columns = ledger.documents.columns(instance, RECORDED)
    return Record(columns, lambda uris: ledger.documents.named(instance, uris, ENTRY))


def _seen_from(found: Listing, recorded: Record) -> Listing:
    return found.seen_from(map(str, recorded.columns["uri"].to_pylist())) if found.nowhere else found


def cut(changes: Difference, sizing: SliceSizing, *, priority: int) -> list[SlicePlan]:
    """Slices of these changes."""
    if not isinstance(changes.changes, ChangeColumns):
        return cut_documents(changes.changes, sizing, priority=priority)
    from instep.document_state.cuts import cut_columns

    return cut_columns(changes.changes, sizing, priority=priority)


def counts_of(changes: Difference) -> dict[str, int]:
    """Number of documents by outcome, for display."""
    found = changes.changes
    actions = (
        found.counts("action") if isinstance(found, ChangeColumns) else Counter(str(each.action) for each in found)
    )
    return {
        "new": actions[Action.INSERT],
        "changed": actions[Action.UPDATE],
        "deleted": actions[Action.DELETE],
        "retried": actions[Action.RETRY],
        "unchanged": changes.unchanged,
        "known_failures": changes.known_failures,
    }


def state_of(changes: Difference) -> list[str]:
    """What tells this plan from others, for its digest."""
    found = changes.changes
    if not isinstance(found, ChangeColumns):
        return ["\0".join((each.action, each.uri, str(each.size), each.version)) for each in found]
    state = hashlib.sha256()
    for column in found.buffers("action", "uri", "size", "version"):
        state.update(column)
    return [state.hexdigest()]


class PlannedChanges(Sequence[Planned]):
    """The same changes for a plan that explains them, made when they are read."""

    def __init__(self, changes: Sequence[DocumentChange]) -> None:
        self._changes = changes

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Planned]:
        return map(_planned, self._changes)

    @overload
    def __getitem__(self, at: int) -> Planned: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Planned]: ...
    def __getitem__(self, at: int | slice) -> Planned | Sequence[Planned]:
        return [*map(_planned, self._changes[at])] if isinstance(at, slice) else _planned(self._changes[at])


def _planned(change: DocumentChange) -> Planned:
    return Planned(str(change.action), change.uri, change.reason)
