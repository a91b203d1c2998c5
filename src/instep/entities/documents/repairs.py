"""Plan a repair: the work of a job that mends what differs in a target, and leaves the source's changes to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from instep.domain.discrepancies import repairs
from instep.domain.manifest import Action, DocumentChange
from instep.domain.texts import amount
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.changes import PlannedChanges, cut
from instep.entities.documents.differences import Differences, Part, compare
from instep.entities.plan_request import Found, Kind, PlanRequest, Refusal
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.pipeline.documents.stored_changes import PartFile, Workspace


class _Repairs:
    """The changes that mend the parts of a corpus, in files. `recorded` counts those of documents that are recorded,
    `left` documents that cannot be mended, of which `first` is one.
    """

    def __init__(self, setup: DocumentAdapters) -> None:
        self._setup = setup
        self._work: Workspace | None = None
        self._files: list[PartFile] = []
        self.actions = Counter[str]()
        self.recorded = self.left = 0
        self.first = ""

    def take(self, part: Part) -> None:
        if not part.found:
            return
        changes = repairs(part.found, part.truth, self._setup.buckets)
        mended = {each.document_id for each in changes}
        left = {each.document_id: each.uri for each in part.found if each.document_id not in mended}
        self.left += len(left)
        self.first = self.first or next(iter(left.values()), "")
        self.recorded += len(mended & part.truth.recorded.keys())
        self.actions.update(str(each.action) for each in changes)
        self._keep(changes)

    def _keep(self, changes: Sequence[DocumentChange]) -> None:
        from instep.document_state.difference import change_columns
        from instep.pipeline.documents.stored_changes import Workspace, write_part

        if self._work is None:
            self._work = Workspace(self._setup.planning_folder)
        if file := write_part(self._work.folder, change_columns(changes).table):
            self._files.append(file)

    def changes(self) -> Sequence[DocumentChange]:
        from instep.pipeline.documents.stored_changes import StoredChanges, cut_here

        return () if self._work is None else StoredChanges(cut_here, self._work, self._files, self.actions).few()

    def names(self) -> list[str]:
        """Files are called after their content."""
        return [each.name for each in self._files]


def find_repairs(setup: DocumentAdapters, request: PlanRequest) -> Found:
    """Find the work of a job that only repairs, as `EntitySetup.find`. Its watermark is that of the served instance:
    changes of the source are left to the next run.
    """
    if request.kind is Kind.REBUILD:
        raise UserError(f"{setup.ref} is to be rebuilt, not repaired: {'; '.join(request.why)}", hint="Run: instep run")
    made = _Repairs(setup)
    seen = compare(setup, request.ledger, request.generation, listing=request.listing, take=made.take)
    changes = made.changes()
    why = [f"{number:,} {kind}" for kind, number in seen.counts.items() if number]
    if not seen.served:
        why.append(f"the alias {setup.alias} does not point to it")
    left = [f"{amount(made.left, 'document')} cannot be repaired: the source does not list {made.first}"] * bool(
        made.left
    )
    return Found(
        kind=Kind.REFRESH if changes or not seen.served else Kind.NOTHING,
        why=why or ["the target holds what it should"],
        unit="document",
        slices=cut(changes, setup.sizing, priority=setup.priority),
        counts={**seen.counts, "unchanged": seen.recorded - made.recorded},
        changes=PlannedChanges(changes),
        state=made.names(),
        problems=[*seen.problems, *left],
        held_back=left[0] if left and not changes else None,
        blocked=None if request.options.allow_deletes else _blocked(setup, seen, made),
        target=request.checkpoint.watermark if request.checkpoint else None,
    )


def _blocked(setup: DocumentAdapters, seen: Differences, made: _Repairs) -> Refusal | None:
    """Refuse to repair with a replaced ledger, which knows none of the rows: else all would be deleted."""
    removed = made.actions[Action.DELETE]
    documents = seen.recorded + made.actions.total() - made.recorded
    if not setup.guard.refuses(removed, documents):
        return None
    return Refusal(
        f"a repair would remove {removed:,} of {documents:,} documents; "
        f"more than {setup.guard.share:.0%} at once is not deleted without permission"
    )
