"""Changes of the source since an instance was built, or since the last look, as slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.domain.jobs import JobPart, SlicePlan
from instep.domain.losses import NO_LOSS
from instep.domain.manifest import difference
from instep.domain.planning import cut_documents
from instep.ledger.ledger import Ledger

if TYPE_CHECKING:
    from instep.entities.documents.setup import DocumentSetup


def changed_since(setup: DocumentSetup, ledger: Ledger, part: JobPart) -> list[SlicePlan]:
    """See `EntitySetup.changed_since`. Too many deletes are left to the next run, whose guard asks for permission."""
    indexed = ledger.manifest(part.instance)
    found = setup.source.list(None).seen_from(indexed)
    changes = difference(
        found.documents,
        indexed,
        ledger.failed_versions(part.ref, part.generation),
        complete=found.complete and found.exhaustive,
        buckets=part.buckets,
        deleted=found.deleted,
        retry_failures=False,
    )
    before = ledger.lost_lately(part.ref, part.generation, window=setup.guard.window) if changes.lost else NO_LOSS
    if setup.guard.refuses(changes.lost, changes.recorded, before.units):
        return []
    return cut_documents(changes.changes, setup.sizing, priority=setup.priority)
