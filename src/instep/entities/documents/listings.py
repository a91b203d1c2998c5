"""List a source: by the inventory of its bucket, if one is declared, else by asking it for all that it has.

An inventory tells of the past. So it only says where to look: whatever it says otherwise than the record is looked up
in the bucket, and stands in the listing as it is there. What is newer and already recorded is not undone by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from instep.document_state.columns import ListedColumns, listed_batch
from instep.domain.manifest import SourceDocument
from instep.domain.texts import duration_text
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.comparing import compared
from instep.entities.generations import waiting_wants
from instep.entities.plan_request import PlanRequest
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing
from instep.sources.files import FilesSource

#: Objects that one request lists. Where more differ than a listing takes requests, all are listed; a few never matter.
_PAGE: Final = 1_000
_FEW: Final = 100
_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge of a source before it is listed: the instance that is recorded, if there is one, and the versions at
    which documents failed. `since`: the listing is to be of this moment (ms) at least; None: of now. `allows_empty`:
    whether a user says that folders without anything in them are empty, and not away.
    """

    instance: str | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    since: int | None = 0
    allows_empty: Callable[[], bool] = lambda: False


def known_of(request: PlanRequest, setup: DocumentAdapters, failed: Mapping[str, str]) -> Known:
    """The knowledge that a plan is made with. Wants are met by a listing of the moment that they ask for."""
    wants = waiting_wants(request.ledger, setup.ref, request.generation)
    needed = [each.needed or 0 for each in wants if not each.satisfied_by(request.current)]
    since = None if request.options.full_listing else max(needed, default=0)
    instance = request.checkpoint.instance if request.checkpoint else None
    return Known(instance, failed, since, request.allows_empty)


def list_source(
    setup: DocumentAdapters, ledger: Ledger, known: Known, progress: Callable[[int], None] | None
) -> Listing:
    """List a source as it is seen from what is recorded. Raises `UserError` when it cannot be."""
    source = setup.source
    if known.since is None or not isinstance(source, FilesSource) or source.inventory is None:
        return source.list(progress)
    from instep.sources.s3_inventory import Damaged

    try:
        manifest = source.inventory.newest()
        if manifest.created < known.since:
            return source.list(progress)
        past = source.listed_before(manifest, progress)
    except Damaged as error:
        said = f"all objects were listed, because the inventory cannot be used: {error}"
        return replace(source.list(progress), warnings=[said])
    past = replace(past, warnings=[_age(manifest.created, ledger.present())])
    if known.instance is None:
        return past
    return _put_right(past, source, ledger, known, setup.buckets) or source.list(progress)


def _put_right(past: Listing, source: FilesSource, ledger: Ledger, known: Known, buckets: int) -> Listing | None:
    """The listing with all that differs from the record as it is now. None where only a listing of now tells that, or
    costs less.
    """
    _, found = compared(ledger, known.instance, past, known.failed, buckets=buckets)
    if not found.changes:
        return past
    if len(found.changes) > max(_FEW, len(past.documents) // _PAGE):
        return None
    uris = [each.uri for each in found.changes]
    looked = source.look_again(uris)
    return None if looked is None else replace(past, documents=_replaced(past, uris, looked.documents))


def _replaced(past: Listing, uris: Sequence[str], documents: Collection[SourceDocument]) -> ListedColumns:
    """The listing with these documents in place of those with these URIs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert isinstance(past.documents, ListedColumns), "an inventory is in columns"
    table = past.documents.table
    others = table.filter(pc.invert(pc.is_in(table["uri"], value_set=pa.array(uris, pa.string()))))
    return ListedColumns(pa.concat_tables([others, pa.Table.from_batches([listed_batch(documents)])]).sort_by("uri"))


def _age(created: int, now: int) -> str:
    old = duration_text(max(0, now - created) // _MINUTE * _MINUTE)
    when = f"{datetime.fromtimestamp(created / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    return (
        f"listed by the inventory of {when}, {old} old: what has changed since is found by events, by the next one, or "
        "by --full-listing"
    )
