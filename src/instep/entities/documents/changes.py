"""Find documents that need work: compare the source's listing with the record of an instance."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, overload

from instep.document_state.columns import ChangeColumns, ChangesElsewhere
from instep.domain.fingerprint import changed_parts
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobPart, SlicePlan
from instep.domain.manifest import Action, Difference, DocumentChange
from instep.domain.planning import SliceSizing, cut_documents
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.seen import Seen
from instep.domain.texts import amount, duration_text
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.listed_source import ListedSource
from instep.entities.documents.listings import Known, known_of
from instep.entities.documents.looks import look_at
from instep.entities.documents.topics import follow_topic, resumed
from instep.entities.documents.versions import changed_since_seen, files_version, is_built_of
from instep.entities.generations import wanted_as_of_now
from instep.entities.plan_request import UNCHANGED, Found, Kind, Planned, PlanRequest, Refusal, Since
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing
from instep.sources.tables.row_documents import RowDocuments
from instep.sources.topic import TopicSource

_SHARED: Final = (
    "Has another project that shares this ledger an entity of this name? Then rename one of them, or give this project "
    "a ledger of its own (`ledger`). "
)


def cut(changes: Sequence[DocumentChange], sizing: SliceSizing, *, priority: int) -> list[SlicePlan]:
    """Slices of these changes."""
    if isinstance(changes, ChangesElsewhere):
        return changes.cut(sizing, priority=priority)
    if not isinstance(changes, ChangeColumns):
        return cut_documents(changes, sizing, priority=priority)
    from instep.document_state.cuts import cut_columns

    return cut_columns(changes, sizing, priority=priority)


def counts_of(changes: Difference) -> dict[str, int]:
    """Number of documents by outcome, for display."""
    found = changes.changes
    actions = (
        found.counts("action")
        if isinstance(found, ChangeColumns | ChangesElsewhere)
        else Counter(str(each.action) for each in found)
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
    """The facts that tell this plan from others, for its digest."""
    found = changes.changes
    if isinstance(found, ChangesElsewhere):
        return list(found.names())
    if not isinstance(found, ChangeColumns):
        return ["\0".join((each.action, each.uri, str(each.size), each.version)) for each in found]
    state = hashlib.sha256()
    for column in found.buffers("action", "uri", "size", "version"):
        state.update(column)
    return [state.hexdigest()]


class PlannedChanges(Sequence[Planned]):
    """Changes as a plan explains them, made when they are read."""

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


def find_documents(setup: DocumentAdapters, request: PlanRequest) -> Found:
    """See `EntitySetup.find`."""
    if (going_on := resumed(setup, request)) is not None:
        return going_on
    ledger, options, checkpoint = request.ledger, request.options, request.checkpoint
    kind, why = request.kind, list(request.why)
    # Before anything is looked at: what changes in between may be missed, and is not said to be there.
    asked = ledger.present()
    topic = follow_topic(setup, request)
    base, failed = _base(setup, request), ledger.failures.versions(setup.ref, request.generation)
    known = known_of(request, setup, failed)
    seen = ListedSource(setup, ledger, known, request.listing, topic.listing if topic else None)
    # A build starts from nothing: documents that failed under the old transform may pass under the new one.
    anew = kind in (Kind.FIRST_BUILD, Kind.REBUILD)
    retry = options.retry_failures or anew or bool(failed and request.settings().retry_failures)
    whole = partial(seen.compared, base, failed, buckets=setup.buckets, retry_failures=retry)
    look = look_at(setup, request, topic, base, failed, retry=retry, whole=whole)
    found, changes = look.found, look.changes
    confirmed = None
    if kind is Kind.REFRESH and look.moved is not None:
        why = [*why, look.moved]
    elif kind is Kind.REFRESH and not changes.changes:
        why = [] if look.partial else wanted_as_of_now(request, setup.ref, now=asked)
        kind = Kind.REFRESH if why else Kind.NOTHING
        confirmed = look.seen if look.confirms and kind is Kind.NOTHING else None
    if kind is Kind.FIRST_BUILD and not changes.changes:
        kind, why = Kind.NOTHING, [*why, _empty(setup.source_text)]
    held_back = None
    if (kind is Kind.FIRST_BUILD or (kind is Kind.REBUILD and checkpoint)) and not request.asked():
        held_back = _would_fail_again(setup, checkpoint, request.current, seen, ledger)
        if held_back:
            kind, why, changes = Kind.NOTHING, [*why, held_back], replace(changes, changes=())
    blocked, lost = None, 0
    if kind is Kind.REFRESH:
        blocked, lost = _blocked(setup, changes, found, request), changes.lost
    elif kind is Kind.REBUILD and checkpoint:
        blocked, lost = _left_out(setup, checkpoint, seen, found, request)
    slices: Sequence[SlicePlan] = []
    if kind is not Kind.NOTHING:
        sizing = replace(setup.sizing, asked=request.settings().slice_rows)
        slices = cut(changes.changes, sizing, priority=setup.priority)
    return Found(
        kind=kind,
        why=why,
        unit="document",
        slices=slices,
        counts=counts_of(changes),
        changes=PlannedChanges(changes.changes),
        state=state_of(changes),
        problems=found.problems,
        warnings=[
            *(topic.warnings if topic else ()),
            *seen.warnings,
            *look.warnings,
            *found.warnings,
            *_orphans(found),
            *(() if topic else _unread(setup.unread, changes.changes)),
        ],
        blocked=blocked,
        held_back=held_back,
        target=_reached(checkpoint, found, asked, rest=look.partial or bool(topic and topic.read.behind)),
        lost=Loss(units=lost),
        compared=seen.told,
        partial=look.partial,
        left=topic.read.left if topic else 0,
        until=topic.read.end if topic else None,
        seen=look.seen,
        confirmed=confirmed,
        of_past=found.as_of is not None,
    )


def _unread(suffixes: Collection[str], changes: Sequence[DocumentChange]) -> list[str]:
    """A warning of files whose format takes another parser than the one that is declared."""
    found: Counter[str] = Counter()
    for suffix in sorted(suffixes) if changes else ():
        if isinstance(changes, ChangeColumns):
            found[suffix] = changes.ending(suffix)
        elif not isinstance(changes, ChangesElsewhere):
            found[suffix] = sum(each.uri.lower().endswith(suffix) and each.action != Action.DELETE for each in changes)
    if not (names := [f"{number:,} {suffix}" for suffix, number in found.items() if number]):
        return []
    hint = "declare `parse: {type: kreuzberg}` (pip install 'instep[formats]'), or leave them out by `exclude`"
    return [f"files whose format needs another parser, so they fail: {', '.join(names)}; {hint}"]


def _empty(source: str) -> str:
    return (
        f"there are no documents to index in `{source}`: put some there, or check `path`, `include` and `exclude` "
        "(`instep plan --skipped` lists what no `include` matches)"
    )


def _reached(checkpoint: Checkpoint | None, found: Listing, asked: int, *, rest: bool) -> int:
    """The moment (ms) up to which it is complete then: when it was `asked`. Of a `rest`, such as documents that were
    not looked at, nothing is known, and of what is newer than the listing: it stays complete up to where it was.
    """
    before = checkpoint.watermark if checkpoint else 0
    if found.as_of is not None:
        return max(found.as_of, before)
    return before if rest else asked


def _orphans(found: Listing) -> list[str]:
    if not found.orphans:
        return []
    said = f"{amount(found.orphans, 'row')} of `document.with` {'is' if found.orphans == 1 else 'are'}"
    return [f"{said} part of a document that is not there, or is deleted: nothing of them is indexed"]


def _base(setup: DocumentAdapters, request: PlanRequest) -> str | None:
    """The instance whose manifest is compared; None if nothing is indexed."""
    if request.kind is Kind.RESUME and request.unfinished:
        return request.unfinished.part(setup.ref).part.instance
    return request.checkpoint.instance if request.kind is Kind.REFRESH and request.checkpoint else None


def _would_fail_again(
    setup: DocumentAdapters, checkpoint: Checkpoint | None, current: Instance | None, seen: ListedSource, ledger: Ledger
) -> str | None:
    """The reason why a build would be refused as the last one was, made in the same way, if all documents fail again
    that have failed at this version; None if it may go well, or nothing is known of it. `checkpoint` is of what is
    served, if something is.
    """
    if current is None or current.state is not InstanceState.MISSING or current.reason is not Reason.FAILURE:
        return None
    last = ledger.instances.get(current.previous) if current.previous else None
    if last is None or changed_parts(setup.fingerprint, last.fingerprint or {}):
        return None
    failures = ledger.failures.versions(setup.ref, current.generation)
    found = seen.tally(checkpoint.instance if checkpoint else None, failures)
    if not found.documents:
        return "the source is empty; the served index stays" if checkpoint else None
    if checkpoint is None:
        known = f"all of {amount(found.documents, 'document')} failed; they are not tried again before they change"
        return f"{known} (see `instep failures`)" if found.failed == found.documents else None
    verdict = found.judged(setup.needed)
    if not found.failed or verdict.enough:
        return None
    return (
        f"it is not tried again before its documents change: {verdict}; the served index stays (see `instep failures`)"
    )


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
        others = _others(setup, changes)
        refused = f"{said}; {bound} at once is not deleted without permission{others}"
        return Refusal(refused, look=_SHARED if others else "")
    lately = f"{before:,} more were deleted in the last {duration_text(setup.guard.window)}"
    bound = f"more than {setup.guard.share:.0%}"
    return Refusal(f"{said}, and {lately}; {bound} in that time is not deleted without permission")


def _others(setup: DocumentAdapters, changes: Difference) -> str:
    """A text for a record of which nothing is in the source as it was: it may be of another project's documents, some
    of which are named alike.
    """
    if changes.unchanged or 2 * changes.gone < changes.recorded:
        return ""
    found = changes.changes
    such = "" if isinstance(found, ChangesElsewhere) else f", such as {found[-changes.gone].uri}"
    return (
        f"; nothing in `{setup.source_text}` matches what is recorded of {setup.ref}, which seems to be made from "
        f"other documents{such}"
    )


def _lost_before(setup: DocumentAdapters, changes: Difference, ledger: Ledger, generation: str) -> int:
    """Documents lost recently: queried only if some are lost now."""
    return ledger.losses.lately(setup.ref, generation, window=setup.guard.window).units if changes.lost else 0


def _left_out(
    setup: DocumentAdapters, checkpoint: Checkpoint, seen: ListedSource, built: Listing, request: PlanRequest
) -> tuple[Refusal | None, int]:
    """The delete guard of a rebuild: documents that are not listed would be left out and no longer be served. Returns
    the refusal, and the number of such documents. Tasks list for each look: what is `built` may have other problems.
    """
    options = request.options
    found, changes = seen.left_out(checkpoint.instance, buckets=setup.buckets)
    problems = [*built.problems, *found.problems]
    if problems and not options.allow_deletes:
        return Refusal(f"a build would leave out what could not be listed: {problems[0]}"), 0
    if changes.gone and not found.exhaustive and not options.allow_deletes:
        refusal = Refusal(
            f"a build would leave out {amount(changes.gone, 'document')} that the source no longer mentions; "
            f"the first is {changes.changes[-changes.gone].uri}"
        )
        return refusal, changes.lost
    return _blocked(setup, changes, found, request), changes.lost


def changed_since(setup: DocumentAdapters, ledger: Ledger, part: JobPart, passed_over: Collection[str] = ()) -> Since:
    """See `EntitySetup.changed_since`. Too many deletes are left to the next run, whose guard asks for permission; and
    so are changes of a table of which its versions do not tell, and all messages of a topic, which are read once, from
    the offsets where this job ends.
    """
    if isinstance(setup.source, TopicSource):
        return UNCHANGED
    known: Seen | None = None
    if isinstance(setup.source, RowDocuments) and setup.source.lake:
        followed = changed_since_seen(setup, ledger, part)
        if followed is None:
            return UNCHANGED
        changes, known = followed[0], Seen(version=followed[1])
    else:
        version = files_version(setup)
        known = None if version is None else Seen(version=version)
        failed = ledger.failures.versions(part.ref, part.generation)
        if version is not None and is_built_of(ledger, part, version, failed):
            return UNCHANGED
        seen = ListedSource(setup, ledger, Known(part.instance, failed))
        _, changes = seen.compared(part.instance, failed, buckets=part.buckets)
    before = ledger.losses.lately(part.ref, part.generation, window=setup.guard.window) if changes.lost else NO_LOSS
    if setup.guard.refuses(changes.lost, changes.recorded, before.units):
        return UNCHANGED
    left = _without(passed_over, changes.changes) if passed_over else changes.changes
    if len(left) < len(changes.changes):
        known = None  # With what is seen here, the next run would not look for what is passed over.
    return Since(cut(left, setup.sizing, priority=setup.priority), known)


def _without(ids: Collection[str], changes: Sequence[DocumentChange]) -> Sequence[DocumentChange]:
    if isinstance(changes, ChangesElsewhere):
        return changes  # So many are read again, in which some are still not seen: the next look has few.
    if isinstance(changes, ChangeColumns):
        return changes.without(ids)
    return [each for each in changes if each.document_id not in ids]
