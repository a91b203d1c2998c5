"""Compare a listing with the record of an instance: in columns, or one by one where that is quicker.

Arrow is imported for what came in columns (rows of tables, inventories, long listings) and for what is long. A short
listing of files is compared without it: a run that finds nothing to do takes half as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from instep.document_state.columns import FEW, ListedColumns, listed_columns
from instep.domain.identity import as_named_now
from instep.domain.manifest import Difference, SourceDocument, difference, same, unchanged
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
    """The changes since an instance was recorded (None: nothing is), and the listing as seen from there."""
    listed = in_columns(found)
    if listed is not None:
        from instep.document_state import difference as columns

        recorded = record_of(ledger, instance)
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
    indexed = ledger.documents.versions(instance) if instance else {}
    if indexed and not failed and not found.deleted and same(found.documents, indexed):
        return found, unchanged(len(found.documents))
    found = found.seen_from(indexed)
    told = {*failed, *found.deleted}
    listed_once = _first_of_each(found.documents)
    touched = [each for each in listed_once if indexed.get(each.uri) != (each.size, each.version) or each.uri in told]
    untouched = {each.uri for each in listed_once}.difference(each.uri for each in touched)
    # Whole entries are read of what may have changed alone: of all they take as long as the listing.
    asked = indexed.keys() - untouched
    changed = difference(
        touched,
        ledger.documents.some(instance, asked) if instance and asked else {},
        failed,
        complete=_tells_all(found),
        buckets=buckets,
        deleted=found.deleted,
        retry_failures=retry_failures,
    )
    return found, replace(changed, unchanged=changed.unchanged + len(untouched), recorded=len(indexed))


def _first_of_each(documents: Sequence[SourceDocument]) -> Sequence[SourceDocument]:
    """The documents without those whose URI was listed before: `difference` counts the first one, and has to see it."""
    by_uri: dict[str, SourceDocument] = {}
    for each in documents:
        by_uri.setdefault(each.uri, each)
    return documents if len(by_uri) == len(documents) else [*by_uri.values()]


def left_out(ledger: Ledger, instance: str, found: Listing, *, buckets: int) -> tuple[Listing, Difference]:
    """The documents of an instance that a build of all that is listed would leave out. A document that was only renamed
    is not left out.
    """
    listed = in_columns(found)
    if listed is not None:
        from instep.document_state import difference as columns

        recorded = record_of(ledger, instance)
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


def in_columns(found: Listing) -> ListedColumns | None:
    """The documents in columns, if they came so or are many."""
    if isinstance(found.documents, ListedColumns):
        return found.documents
    return listed_columns(found.documents) if len(found.documents) > FEW else None


def record_of(ledger: Ledger, instance: str | None) -> Record:
    """The record of an instance; None: nothing is indexed."""
    from instep.document_state.difference import ENTRY, RECORDED, Record

    if instance is None:
        return Record.nothing()
    columns = ledger.documents.columns(instance, RECORDED)
    return Record(columns, lambda uris: ledger.documents.named(instance, uris, ENTRY))


def _seen_from(found: Listing, recorded: Record) -> Listing:
    return found.seen_from(map(str, recorded.columns["uri"].to_pylist())) if found.nowhere else found
