"""Plan a repair: read the documents whose rows differ, and compare each as a whole with the stored rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.domain.discrepancies import repairs
from instep.domain.manifest import Action, DocumentChange
from instep.domain.planning import cut_documents
from instep.domain.texts import amount
from instep.entities.documents import differences
from instep.entities.plan_request import Found, Kind, Planned, PlanRequest, Refusal
from instep.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.entities.documents.differences import Differences
    from instep.entities.documents.setup import DocumentSetup


def find_repairs(setup: DocumentSetup, request: PlanRequest) -> Found:
    """As `EntitySetup.find`, for a job that only repairs. Its watermark is that of the served instance: changes of the
    source are left to the next run.
    """
    if request.kind is Kind.REBUILD:
        raise UserError(
            f"{setup.ref} is to be built anew, not repaired: {'; '.join(request.why)}", hint="Run: instep run"
        )
    seen = differences.compare(setup, request.ledger, request.generation, listing=request.listing)
    changes = repairs(seen.found, seen.truth, setup.buckets)
    why = [f"{number:,} {kind}" for kind, number in seen.counts.items() if number]
    if not seen.served:
        why.append(f"the alias {setup.alias} does not lead to it")
    left = _left(seen, changes)
    return Found(
        kind=Kind.REFRESH if changes or not seen.served else Kind.NOTHING,
        why=why or ["the target holds what it should"],
        unit="document",
        slices=cut_documents(changes, setup.sizing, priority=setup.priority),
        counts={**seen.counts, "unchanged": len(seen.truth.recorded) - _recorded(seen, changes)},
        changes=[Planned(str(each.action), each.uri, each.reason) for each in changes],
        state=["\0".join((each.action, each.document_id, each.reason)) for each in changes],
        problems=[*seen.problems, *left],
        held_back=left[0] if left and not changes else None,
        blocked=None if request.options.allow_deletes else _blocked(setup, seen, changes),
        target=request.checkpoint.watermark if request.checkpoint else None,
    )


def _left(seen: Differences, changes: Sequence[DocumentChange]) -> list[str]:
    """Notes about differences that are not repaired."""
    mended = {each.document_id for each in changes}
    left = {each.document_id: each.uri for each in seen.found if each.document_id not in mended}
    if not left:
        return []
    return [f"{amount(len(left), 'document')} cannot be mended: the source does not list {next(iter(left.values()))}"]


def _recorded(seen: Differences, changes: Sequence[DocumentChange]) -> int:
    return sum(each.document_id in seen.truth.recorded for each in changes)


def _blocked(setup: DocumentSetup, seen: Differences, changes: Sequence[DocumentChange]) -> Refusal | None:
    """Refuse to repair with a replaced ledger, which knows none of the rows: else all would be deleted."""
    removed = sum(each.action is Action.DELETE for each in changes)
    documents = len(seen.truth.recorded) + len(changes) - _recorded(seen, changes)
    if not setup.guard.refuses(removed, documents):
        return None
    return Refusal(
        f"a repair would remove {removed:,} of {documents:,} documents; "
        f"more than {setup.guard.share:.0%} at once is not deleted unasked"
    )
