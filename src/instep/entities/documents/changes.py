"""Find documents that need work: compare the source's listing with the manifest of the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.domain.fingerprint import changed_parts
from instep.domain.identity import as_named_now
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobPart, SlicePlan
from instep.domain.manifest import Difference
from instep.domain.promotion_rules import NO_LOSS, Loss, judged
from instep.domain.texts import amount, duration_text
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.comparing import PlannedChanges, compared, counts_of, cut, left_out, state_of
from instep.entities.generations import wanted_as_of_now
from instep.entities.plan_request import Found, Kind, PlanRequest, Refusal
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing


def find_documents(setup: DocumentAdapters, request: PlanRequest) -> Found:
    """See `EntitySetup.find`."""
    ledger, options, checkpoint = request.ledger, request.options, request.checkpoint
    kind, why = request.kind, list(request.why)
    found = setup.source.list(request.listing)
    base, failed = _base(setup, request), ledger.failures.versions(setup.ref, request.generation)
    # A build starts from nothing: documents that failed under the old transform may pass under the new one.
    anew = kind in (Kind.FIRST_BUILD, Kind.REBUILD)
    retry = options.retry_failures or anew or bool(failed and request.settings().retry_failures)
    found, changes = compared(ledger, base, found, failed, buckets=setup.buckets, retry_failures=retry)
    if kind is Kind.REFRESH and not changes.changes:
        why = wanted_as_of_now(request, setup.ref, now=ledger.present())
        kind = Kind.REFRESH if why else Kind.NOTHING
    if kind is Kind.FIRST_BUILD and not changes.changes:
        kind, why = Kind.NOTHING, [*why, "the source holds no documents that can be indexed"]
    held_back = None
    if (kind is Kind.FIRST_BUILD or (kind is Kind.REBUILD and checkpoint)) and not request.asked():
        held_back = _would_fail_again(setup, checkpoint, request.current, found, ledger)
        if held_back:
            kind, why, changes = Kind.NOTHING, [*why, held_back], replace(changes, changes=())
    blocked, lost = None, 0
    if kind is Kind.REFRESH:
        blocked, lost = _blocked(setup, changes, found, request), changes.lost
    elif kind is Kind.REBUILD and checkpoint:
        blocked, lost = _left_out(setup, checkpoint, found, request)
    slices: Sequence[SlicePlan] = []
    if kind is not Kind.NOTHING:
        sizing = replace(setup.sizing, asked=request.settings().slice_rows)
        slices = cut(changes, sizing, priority=setup.priority)
    return Found(
        kind=kind,
        why=why,
        unit="document",
        slices=slices,
        counts=counts_of(changes),
        changes=PlannedChanges(changes.changes),
        state=state_of(changes),
        problems=found.problems,
        blocked=blocked,
        held_back=held_back,
        lost=Loss(units=lost),
    )


def _base(setup: DocumentAdapters, request: PlanRequest) -> str | None:
    """The instance whose manifest is compared; None if nothing is indexed."""
    if request.kind is Kind.RESUME and request.unfinished:
        return request.unfinished.part(setup.ref).part.instance
    return request.checkpoint.instance if request.kind is Kind.REFRESH and request.checkpoint else None


def _would_fail_again(
    setup: DocumentAdapters, checkpoint: Checkpoint | None, current: Instance | None, found: Listing, ledger: Ledger
) -> str | None:
    """Why a build would be refused as the last one was, made in the same way, if all documents fail again that
    have failed at this version; None if it may go well, or nothing is known of it. `checkpoint` is of what is served,
    if something is.
    """
    if current is None or current.state is not InstanceState.MISSING or current.reason is not Reason.FAILURE:
        return None
    last = ledger.instances.get(current.previous) if current.previous else None
    if last is None or changed_parts(setup.fingerprint, last.fingerprint or {}):
        return None
    listed = {each.uri: each.version for each in found.documents}
    if not listed:
        return "the source is empty, and what is served stays" if checkpoint else None
    failures = ledger.failures.versions(setup.ref, current.generation)
    failing = {uri for uri, version in listed.items() if failures.get(uri) == version}
    if checkpoint is None:
        known = f"all of {amount(len(listed), 'document')} failed; they are not tried again before they change"
        return f"{known} (see `instep failures`)" if len(failing) == len(listed) else None
    served = {uri: version for uri, (_, version) in ledger.documents.versions(checkpoint.instance).items()}
    verdict = judged(as_named_now(served, listed), listed, failing, setup.needed)
    if not failing or verdict.enough:
        return None
    return f"it is not tried again before they change: {verdict}; what is served stays (see `instep failures`)"


def _blocked(setup: DocumentAdapters, changes: Difference, found: Listing, request: PlanRequest) -> Refusal | None:
    """Refuse an empty listing: a volume that is not mounted looks the same."""
    options = request.options
    before = _lost_before(setup, changes, request.ledger, request.generation)
    if not setup.guard.refuses(changes.lost, changes.recorded, before):
        return None
    if not found.documents and changes.lost == changes.recorded:
        if request.allows_empty():
            return None
        there = f"{amount(changes.recorded, 'document')} {'is' if changes.recorded == 1 else 'are'}"
        return Refusal(
            f"the source is empty, and {there} indexed", "--allow-empty", "Is all of it there, and mounted? "
        )
    if options.allow_deletes:
        return None
    emptied = changes.lost - changes.gone
    how = "gone from the source" if emptied <= 0 else "gone from the source, or empty by now"
    are = "is" if changes.lost == 1 else "are"
    said = f"{changes.lost:,} of {amount(changes.recorded, 'document')} {are} {how}"
    if setup.guard.refuses(changes.lost, changes.recorded):
        bound = "all" if changes.lost >= changes.recorded else f"more than {setup.guard.share:.0%}"
        return Refusal(f"{said}; {bound} at once is not deleted unasked")
    lately = f"{before:,} more were deleted in the last {duration_text(setup.guard.window)}"
    return Refusal(f"{said}, and {lately}; more than {setup.guard.share:.0%} in that time is not deleted unasked")


def _lost_before(setup: DocumentAdapters, changes: Difference, ledger: Ledger, generation: str) -> int:
    """Documents lost recently: queried only if some are lost now."""
    return ledger.losses.lately(setup.ref, generation, window=setup.guard.window).units if changes.lost else 0


def _left_out(
    setup: DocumentAdapters, checkpoint: Checkpoint, found: Listing, request: PlanRequest
) -> tuple[Refusal | None, int]:
    """The delete guard of a rebuild: documents that are not listed would be left out and no longer be served. Returns
    the refusal, and the number of such documents.
    """
    options = request.options
    found, changes = left_out(request.ledger, checkpoint.instance, found, buckets=setup.buckets)
    if not found.complete and not options.allow_deletes:
        return Refusal(f"a build would leave out what could not be listed: {found.problems[0]}"), 0
    if changes.gone and not found.exhaustive and not options.allow_deletes:
        refusal = Refusal(
            f"a build would leave out {amount(changes.gone, 'document')} that the source says nothing of any more; "
            f"the first is {changes.changes[-changes.gone].uri}"
        )
        return refusal, changes.lost
    return _blocked(setup, changes, found, request), changes.lost


def changed_since(setup: DocumentAdapters, ledger: Ledger, part: JobPart) -> list[SlicePlan]:
    """See `EntitySetup.changed_since`. Too many deletes are left to the next run, whose guard asks for permission."""
    failed = ledger.failures.versions(part.ref, part.generation)
    _, changes = compared(ledger, part.instance, setup.source.list(None), failed, buckets=part.buckets)
    before = ledger.losses.lately(part.ref, part.generation, window=setup.guard.window) if changes.lost else NO_LOSS
    if setup.guard.refuses(changes.lost, changes.recorded, before.units):
        return []
    return cut(changes, setup.sizing, priority=setup.priority)
