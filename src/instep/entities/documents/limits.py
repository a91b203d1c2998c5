"""Limits of an entity's documents, and notes about documents with too many chunks or with none."""

from __future__ import annotations

from instep.domain.jobs import JobPart
from instep.domain.texts import amount
from instep.ledger.ledger import Ledger
from instep.pipeline.documents.limits import Limits, Oversize
from instep.project import DocumentEntity

#: Larger than any document, in bytes.
ANY_SIZE = 2**62
#: Number of documents that a warning names.
_NAMED = 5


def limits_of(entity: DocumentEntity) -> Limits:
    declared = entity.limits
    return Limits(
        declared.max_document_bytes, declared.max_line_bytes, declared.max_chunks, Oversize(declared.on_oversize)
    )


def oversized_notes(limits: Limits, part: JobPart, ledger: Ledger) -> list[str]:
    """A warning about documents over a limit that are indexed because the declaration says so."""
    if limits.on_oversize is not Oversize.WARN:
        return []
    most = limits.max_document_bytes
    number, largest = ledger.oversized(part.instance, size=most, chunks=limits.max_chunks, limit=_NAMED)
    if not number:
        return []
    named = [f"{each.uri} ({each.size:,} bytes, {amount(each.chunks, 'chunk')})" for each in largest]
    others = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    verb = "is" if number == 1 else "are"
    return [f"warning: {amount(number, 'document')} over the limits {verb} indexed: {', '.join(named)}{others}"]


def empty_notes(part: JobPart, ledger: Ledger) -> list[str]:
    """After a build: the number of documents without chunks, which no search can find."""
    if not part.fresh:
        return []
    documents, _, _ = ledger.totals(part.instance)
    filled, _ = ledger.oversized(part.instance, size=ANY_SIZE, chunks=0, limit=1)
    if filled == documents:
        return []
    return [
        f"{documents - filled:,} of {amount(documents, 'document')} have no text (white space, or front matter alone): "
        "nothing of them is indexed, and they count as the same"
    ]
