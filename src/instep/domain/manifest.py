"""Manifest difference: compare a listing of the source with the documents indexed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from instep.domain.identity import bucket_of, canonical_uri, document_id
from instep.domain.promotion_rules import LOSS_WINDOW
from instep.domain.storable import (
    LONGEST_ID,
    LONGEST_VERSION,
    is_storable,
    pack,
    storable,
    storable_key,
    storable_version,
    unpack,
)


class SourceDocument(NamedTuple):
    """A line of a listing. `version` changes when the content may have (mtime in ns, or etag). `locator` is the
    source's own way to find this very version again, where the URI does not say it. A negative `size` is an estimate:
    then the version alone tells what has changed.
    """

    uri: str
    size: int
    version: str
    locator: str = ""


class ManifestEntry(NamedTuple):
    """The record of one indexed document. `digest` says which `chunks` these are (`pipeline.documents.digest`); None
    where that is not known, because it was indexed by an Instep that kept none.
    """

    document_id: str
    uri: str
    size: int
    version: str
    document_hash: str
    chunks: int
    bucket: int
    digest: int | None = None

    def storable(self) -> ManifestEntry:
        if self._is_storable():  # As a rule.
            return self
        return self._replace(
            document_id=storable_key(self.document_id, LONGEST_ID),
            uri=storable(self.uri),
            version=storable_version(self.version),
            document_hash=storable_version(self.document_hash),
        )

    def _is_storable(self) -> bool:
        short = (
            len(self.document_id) <= LONGEST_ID and max(len(self.version), len(self.document_hash)) <= LONGEST_VERSION
        )
        return short and is_storable(f"{self.document_id}{self.uri}{self.version}{self.document_hash}")


class StorableEntries(Sequence[ManifestEntry]):
    """Entries that are known to be storable: none of them is looked at again."""

    def fields(self) -> Mapping[str, Sequence[Any]]:
        """The values of each field of all entries, by its name."""
        raise NotImplementedError


def fields_of(entries: Sequence[ManifestEntry]) -> Mapping[str, Sequence[Any]]:
    """The values of each field of all these entries, by its name: without an object for each, where they have none."""
    if isinstance(entries, StorableEntries):
        return entries.fields()
    columns = zip(*entries, strict=True) if entries else ((),) * len(ManifestEntry._fields)
    return dict(zip(ManifestEntry._fields, columns, strict=True))


@runtime_checkable
class SizedChanges(Protocol):
    """Changes that tell their sizes without an object for each."""

    def sizes(self) -> Sequence[int]:
        """For each the bytes of its document and one more; of one that is deleted, one."""


class Action(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    RETRY = "retry"


#: The version at which a document failed that could not be read: that is said of none.
UNREAD: Final = "(unread)"
#: Why it is tried again.
LEFT_UNREAD: Final = "could not be read before"
GONE: Final = "no longer in the source"
_ACTIONS: Final = {each.value: each for each in Action}


class DocumentChange(NamedTuple):
    """One whole document lifecycle event: the split of the routing document.

    `previous_hash` is the hash of what is indexed now ('' if nothing is, or if it must be
    rewritten whatever its content is).
    """

    action: Action
    document_id: str
    uri: str
    size: int
    version: str
    bucket: int
    previous_hash: str
    reason: str
    locator: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Changes in listing order (deletes last) and the number of unchanged documents. `gone` counts deletes of documents
    that are not listed, unlike those that the source reports. `lost` counts indexed documents that would be lost
    without a user's permission: they are gone, or have no content any more.
    """

    changes: Sequence[DocumentChange]
    unchanged: int
    known_failures: int
    recorded: int
    gone: int = 0
    lost: int = 0


def lost_by(changes: Iterable[DocumentChange]) -> int:
    """The number of documents that would be lost, or lose all their content, without a user's permission."""
    return sum(
        each.reason == GONE if each.action is Action.DELETE else bool(each.previous_hash) and not each.size
        for each in changes
    )


def difference(
    listed: Iterable[SourceDocument],
    recorded: Mapping[str, ManifestEntry],
    failed: Mapping[str, str],
    *,
    complete: bool,
    buckets: int,
    deleted: Iterable[str] = (),
    retry_failures: bool = False,
) -> Difference:
    """Compare a listing with the manifest (both by URI).

    `failed` gives the version at which a document last failed: it is tried again when its version
    differs, or when `retry_failures` is set. What is not listed is deleted only if the listing is `complete`; what the
    source says is `deleted` is so in any case, unless it is listed too. A URI listed twice counts once.
    """
    changes: list[DocumentChange] = []
    seen: set[str] = set()
    unchanged = known = emptied = 0
    for document in listed:
        uri = document.uri
        if uri in seen:
            continue
        seen.add(uri)
        entry = recorded.get(uri)
        failed_at = failed.get(uri)
        if entry is not None and entry.chunks and document.size == 0 and entry.version != document.version:
            emptied += 1
        if failed_at is not None:
            if failed_at == document.version and not retry_failures:
                known += 1
                continue
            reason = "failed before; retry asked"
            if failed_at != document.version:
                reason = LEFT_UNREAD if failed_at == UNREAD else "failed before; changed since"
            changes.append(_change(Action.RETRY, document, entry, buckets, reason))
        elif entry is None:
            changes.append(_change(Action.INSERT, document, None, buckets, "new"))
        elif entry.version != document.version or _resized(document, entry):
            reason = "size changed" if _resized(document, entry) else "touched"
            changes.append(_change(Action.UPDATE, document, entry, buckets, reason))
        else:
            unchanged += 1
    told = [uri for uri in dict.fromkeys(deleted) if uri not in seen]
    changes += _deletions(told, recorded, failed, buckets, "deleted by the source")
    seen.update(told)
    gone: list[DocumentChange] = []
    if complete:
        missing = [uri for uri in dict.fromkeys([*recorded, *failed]) if uri not in seen]
        gone = _deletions(missing, recorded, failed, buckets, GONE)
    lost = emptied + sum(each.uri in recorded for each in gone)
    return Difference([*changes, *gone], unchanged, known, len(recorded), len(gone), lost)


def same(listed: Collection[SourceDocument], indexed: Mapping[str, tuple[int, str]]) -> bool:
    """Whether a listing has what is indexed (sizes and versions by URI), and nothing else: then `difference` finds
    nothing, in several times the time.
    """
    return len(listed) == len(indexed) and indexed == {uri: (size, version) for uri, size, version, _ in listed}


def unchanged(documents: int) -> Difference:
    """The `Difference` where nothing has changed or failed."""
    return Difference((), documents, 0, documents)


def _resized(document: SourceDocument, entry: ManifestEntry) -> bool:
    return document.size >= 0 and document.size != entry.size


def _deletions(
    uris: Iterable[str], recorded: Mapping[str, ManifestEntry], failed: Mapping[str, str], buckets: int, reason: str
) -> list[DocumentChange]:
    """Deletions of indexed documents, then of those that only failed."""
    known, failures = [], []
    for uri in uris:
        entry = recorded.get(uri)
        if entry is not None:
            document = SourceDocument(uri, entry.size, entry.version)
            known.append(_change(Action.DELETE, document, entry, buckets, reason))
        elif uri in failed:
            document = SourceDocument(uri, 0, failed[uri])
            failures.append(_change(Action.DELETE, document, None, buckets, f"failed before; {reason}"))
    return known + failures


def _change(
    action: Action, document: SourceDocument, entry: ManifestEntry | None, buckets: int, reason: str
) -> DocumentChange:
    identity = entry.document_id if entry else document_id(canonical_uri(document.uri))
    return DocumentChange(
        action,
        identity,
        document.uri,
        entry.size if entry and document.size < 0 else abs(document.size),
        document.version,
        bucket_of(identity, buckets),
        entry.document_hash if entry else "",
        reason,
        document.locator,
    )


class DeleteGuard(NamedTuple):
    """Refuses a run that would delete suspiciously much (share of what is recorded) without a user's permission. Less
    than `floor` is not suspicious, unless it is everything. Losses in the `window` (ms) before count as well.
    """

    share: float = 0.2
    floor: int = 100
    window: int = LOSS_WINDOW

    def refuses(self, lost: int, recorded: int, before: int = 0) -> bool:
        """Whether so much of what is recorded may not be lost unasked, when so much was lost `before`, lately."""
        whole = lost + before
        return lost > 0 and (lost >= recorded or (whole >= self.floor and whole > self.share * (recorded + before)))


def encode_changes(changes: Sequence[DocumentChange]) -> bytes:
    """Compact, readable form in which a slice's work is stored: JSON rows, packed."""
    return pack(changes)


def decode_changes(payload: bytes) -> list[DocumentChange]:
    return changes_of(unpack(payload))


def changes_of(rows: Iterable[Sequence[Any]]) -> list[DocumentChange]:
    """The changes that a payload has, unpacked."""
    return [DocumentChange(_ACTIONS[row[0]], *row[1:]) for row in rows]


def by_bucket(changes: Iterable[DocumentChange]) -> Iterator[tuple[int, list[DocumentChange]]]:
    """Changes grouped by bucket, buckets ascending, order within a bucket kept."""
    groups: dict[int, list[DocumentChange]] = {}
    for change in changes:
        groups.setdefault(change.bucket, []).append(change)
    yield from sorted(groups.items())
