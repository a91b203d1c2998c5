"""Discrepancies between a target and its record: rows that are lost, altered, doubled or foreign."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from instep.domain.identity import IdentityError, bucket_of, canonical_uri, document_id
from instep.domain.manifest import Action, DocumentChange, ManifestEntry, SourceDocument


class Discrepancy(StrEnum):
    """Kinds of difference in the rows of a document."""

    #: Fewer chunks are there than were indexed.
    MISSING = "missing"
    #: As many chunks as were indexed, and not the same.
    STALE = "stale"
    #: More chunks than were indexed, or rows of a document that was not.
    ORPHAN = "orphan"
    #: A chunk is there more than once.
    DUPLICATE = "duplicate"
    #: Ids and hashes are right, but texts, titles or vectors differ: only a deep comparison finds that.
    ALTERED = "altered"


class Held(NamedTuple):
    """A document's rows in a target: number of rows, number of chunks, and the digest of the chunks."""

    rows: int = 0
    chunks: int = 0
    digest: int = 0


class Differing(NamedTuple):
    """A document whose rows differ. For a stale one without a readable source, `rows` counts all of its rows."""

    document_id: str
    uri: str
    kind: Discrepancy
    rows: int


def discrepancies(
    held: Mapping[str, Held], recorded: Mapping[str, ManifestEntry], uris: Mapping[str, str]
) -> Iterator[Differing]:
    """The discrepancies of these documents, by their ids. `uris` are what the rows say of documents that are not
    recorded.
    """
    for identity, here in held.items():
        entry = recorded.get(identity)
        uri = entry.uri if entry else uris.get(identity, "")
        chunks = entry.chunks if entry else 0
        if entry and here.rows > here.chunks:
            yield Differing(identity, uri, Discrepancy.DUPLICATE, here.rows - here.chunks)
        if here.chunks < chunks:
            yield Differing(identity, uri, Discrepancy.MISSING, chunks - here.chunks)
        elif here.chunks > chunks:
            yield Differing(identity, uri, Discrepancy.ORPHAN, here.chunks - chunks if entry else here.rows)
        elif entry and entry.digest not in (None, here.digest):
            yield Differing(identity, uri, Discrepancy.STALE, here.chunks)


@dataclass(frozen=True, slots=True)
class Truth:
    """The record and the source of documents: those that are `recorded` (by id), `listed` (by URI), `failed`, and
    `gone` from the source. `exhaustive`: documents that are not listed are gone too.
    """

    recorded: Mapping[str, ManifestEntry]
    listed: Mapping[str, SourceDocument]
    failed: Collection[str]
    gone: Collection[str]
    exhaustive: bool

    def is_gone(self, uri: str) -> bool:
        return uri not in self.listed and (self.exhaustive or uri in self.gone)


def repairs(found: Iterable[Differing], truth: Truth, buckets: int) -> list[DocumentChange]:
    """The changes that repair a target: documents are read and compared as a whole, whatever is recorded. A document
    that is not listed and may not be gone cannot be repaired, because it cannot be read.
    """
    kinds: dict[str, list[str]] = {}
    uris: dict[str, str] = {}
    for each in found:
        kinds.setdefault(each.document_id, []).append(each.kind)
        uris[each.document_id] = each.uri
    made = (_repair(identity, uris[identity], ", ".join(why), truth, buckets) for identity, why in kinds.items())
    return [change for change in made if change is not None]


def _repair(identity: str, uri: str, why: str, truth: Truth, buckets: int) -> DocumentChange | None:
    entry, document = truth.recorded.get(identity), truth.listed.get(uri)
    if entry is None and (document is None or uri in truth.failed or not _is_of(uri, identity)):
        action, document = Action.DELETE, SourceDocument(uri, 0, "")
    elif document is not None:
        action = Action.UPDATE if entry else Action.INSERT
    elif entry is not None and truth.is_gone(uri):
        action, document = Action.DELETE, SourceDocument(uri, entry.size, entry.version)
    else:
        return None
    size = entry.size if entry and document.size < 0 else abs(document.size)
    bucket = bucket_of(identity, buckets)
    return DocumentChange(action, identity, uri, size, document.version, bucket, "", why, document.locator)


def _is_of(uri: str, identity: str) -> bool:
    """Whether rows with this URI really belong to this document."""
    try:
        return document_id(canonical_uri(uri)) == identity
    except IdentityError:
        return False
