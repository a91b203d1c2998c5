"""Look at no more of a source than it takes to know what has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from instep.domain.identity import canonical_uri, document_id
from instep.domain.manifest import Difference, difference, unchanged
from instep.domain.seen import Seen
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.topics import FollowedTopic, compared_with_touched
from instep.entities.documents.versions import NOTHING_LISTED, compared_since, files_state, follow
from instep.entities.generations import waiting_wants
from instep.entities.plan_request import Kind, PlanRequest
from instep.sources.document_source import Listing
from instep.sources.files import FilesSource


class Look(NamedTuple):
    """The listing, or as much of it as was looked at, and what has changed. `moved`: why a refresh has to go on from
    another place of a source that keeps its changes, though nothing may have changed. `seen`: that place;
    `confirms`: if nothing has changed, it is recorded without a job.
    """

    found: Listing
    changes: Difference
    moved: str | None = None
    seen: Seen | None = None
    warnings: Sequence[str] = ()
    partial: bool = False
    confirms: bool = False


def look_at(
    setup: DocumentAdapters,
    request: PlanRequest,
    topic: FollowedTopic | None,
    base: str | None,
    failed: Mapping[str, str],
    *,
    retry: bool,
    whole: Callable[[], tuple[Listing, Difference]],
) -> Look:
    """Compare what tells the changes at the least cost: single paths, versions of a table, messages, or (`whole`) a
    listing.
    """
    ledger, buckets = request.ledger, setup.buckets
    if partly := _at_paths(setup, request, failed, retry_failures=retry):
        return Look(*partly, partial=True)
    if followed := follow(setup, request, base, failed, retry=retry):
        moved = followed.why if followed.moved else None
        if base and followed.listing:
            changes = compared_since(ledger, base, followed, failed, buckets=buckets)
            some = followed.listing, _with_known_failures(changes, failed)
        else:
            some = whole()
        return Look(*some, moved, Seen(version=followed.now), followed.warnings)
    if topic and base and not topic.listing.exhaustive:
        listing = topic.without_messages(failed)
        changes = compared_with_touched(ledger, base, listing, failed, buckets=buckets, retry_failures=retry)
        return Look(listing, _with_known_failures(changes, failed), topic.why if topic.moved else None, topic.seen)
    files = files_state(setup, request, base, failed, retry=retry)
    if files and files.same and base:
        changes = unchanged(ledger.documents.totals(base)[0])
        return Look(NOTHING_LISTED, _with_known_failures(changes, failed), seen=files.seen)
    found = whole()
    if files:
        return Look(*found, seen=files.seen, confirms=True)
    return Look(*found, topic.why if topic and topic.moved else None, topic.seen if topic else None)


def _with_known_failures(changes: Difference, failed: Mapping[str, str]) -> Difference:
    """Add the number of documents that failed before and are unchanged: none of the changes is about them."""
    if not failed:
        return changes
    return replace(changes, known_failures=len(failed.keys() - {each.uri for each in changes.changes}))


def _at_paths(
    setup: DocumentAdapters, request: PlanRequest, failed: Mapping[str, str], *, retry_failures: bool
) -> tuple[Listing, Difference] | None:
    """The changes at the paths of the request. None where only a listing tells them, or a want is for all."""
    ledger, checkpoint, paths = request.ledger, request.checkpoint, request.options.paths
    if paths is None or request.kind is not Kind.REFRESH or checkpoint is None:
        return None
    if not isinstance(setup.source, FilesSource) or waiting_wants(ledger, setup.ref, request.generation):
        return None
    looked = setup.source.look(sorted(paths))
    if looked is None or ledger.documents.any_below(checkpoint.instance, looked.missing):
        return None  # A folder is gone.
    uris = [*(each.uri for each in looked.documents), *looked.missing]
    known = ledger.documents.of_ids(checkpoint.instance, [document_id(canonical_uri(uri)) for uri in uris])
    entries = {each.uri: each for each in known.values()}
    changes = difference(
        looked.documents,
        entries,
        {uri: failed[uri] for uri in uris if uri in failed},
        complete=True,
        buckets=setup.buckets,
        retry_failures=retry_failures,
    )
    recorded, _, _ = ledger.documents.totals(checkpoint.instance) if changes.lost else (0, 0, 0)
    return Listing(looked.documents, []), replace(changes, recorded=recorded)
