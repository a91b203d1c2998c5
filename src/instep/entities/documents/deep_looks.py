"""Look at the content of documents once more, for a comparison: which chunks are wrong, which rows say something else.

Documents are read, cut and, for vectors, embedded again, all through the cache. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from instep.domain.discrepancies import Truth
from instep.domain.fingerprint import changed_parts
from instep.domain.manifest import Action, DocumentChange, ManifestEntry
from instep.entities.documents.adapters import DocumentAdapters
from instep.errors import UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.pipeline.documents.comparison import RowDifference
    from instep.pipeline.documents.pipeline import DocumentProgram


#: Documents per query.
_PORTION = 500
#: Rows compared at a time.
_ROWS = 1_000


class Looked(NamedTuple):
    """Result of a deep comparison: documents by id, and how many could not be read."""

    unlike: Mapping[str, RowDifference]
    unread: int


def program_of(setup: DocumentAdapters, ledger: Ledger, checkpoint: Checkpoint) -> DocumentProgram | None:
    """The program that a run would use for these documents; None if it would run on Spark, or if the index was built by
    another one.
    """
    from instep.pipeline.documents.pipeline import DocumentProgram
    from instep.pipeline.documents.row_program import LookingProgram

    job = ledger.jobs.get(checkpoint.job_id)
    if job is None or changed_parts(setup.fingerprint, checkpoint.fingerprint):
        return None
    program = setup.programs(job.part(setup.ref).part, 0, setup.target)
    if not isinstance(program, DocumentProgram) or isinstance(program, LookingProgram) or program.transformed:
        return None
    return program


def demanded(setup: DocumentAdapters, ledger: Ledger, checkpoint: Checkpoint) -> DocumentProgram:
    """The program that reads documents again as they were indexed. Raises `UserError` if there is none."""
    program = program_of(setup, ledger, checkpoint)
    if program is None:
        raise UserError(
            f"{setup.ref} cannot be compared with --deep, which reads no rows of tables, runs no transforms, and "
            "needs an index that was built with the current settings",
            hint="Compare without --deep, or rebuild it: instep run --full-refresh",
        )
    return program


def as_indexed(truth: Truth, changing: Collection[str]) -> list[ManifestEntry]:
    """The recorded documents of `truth` whose source is unchanged since they were indexed."""
    return [
        each
        for each in truth.recorded.values()
        if each.uri in truth.listed and each.uri not in changing and each.uri not in truth.failed
    ]


def wrong_chunks(
    program: DocumentProgram | None, stale: Sequence[ManifestEntry], truth: Truth, held: Mapping[str, Collection[int]]
) -> dict[str, int]:
    """Number of wrong chunks by document, of those whose source is unchanged."""
    from instep.pipeline.documents.comparison import given, numbers

    made: dict[str, list[int]] = {}

    def take(rows: pa.RecordBatch) -> None:
        for document, some in numbers(rows).items():
            made.setdefault(document, []).extend(some)

    if program is not None:
        for some in _portions(stale):
            given(program, [_change(each, truth) for each in some], take, vectors=False)
    right = {each.document_id: made.get(each.document_id, []) for each in stale}
    return {
        each.document_id: len(set(held[each.document_id]) - set(right[each.document_id]))
        for each in stale
        if _signed(sum(right[each.document_id])) == each.digest
    }


def look(
    program: DocumentProgram, setup: DocumentAdapters, physical: str, entries: Sequence[ManifestEntry], truth: Truth
) -> Looked:
    """Compare the rows of these documents with new ones made from their source."""
    from instep.pipeline.documents.comparison import RowDifference, given, unlike

    found: dict[str, Counter[str]] = {}
    seen: set[str] = set()

    def take(rows: pa.RecordBatch) -> None:
        for at in range(0, rows.num_rows, _ROWS):
            part = rows.slice(at, _ROWS)
            documents = list(dict.fromkeys(map(str, part["document_id"].to_pylist())))
            seen.update(documents)
            for document, counted in unlike(part, setup.target.written(physical, documents, setup.columns)).items():
                found.setdefault(document, Counter()).update(counted._asdict())

    for some in _portions(entries):
        given(program, [_change(each, truth) for each in some], take, vectors=True)
    unread = sum(1 for each in entries if each.chunks and each.document_id not in seen)
    named = {
        each: RowDifference(**{name: counted[name] for name in RowDifference._fields})
        for each, counted in found.items()
    }
    return Looked(named, unread)


def _change(entry: ManifestEntry, truth: Truth) -> DocumentChange:
    document = truth.listed[entry.uri]
    size = entry.size if document.size < 0 else document.size
    return DocumentChange(
        Action.INSERT, entry.document_id, entry.uri, size, document.version, entry.bucket, "", "", document.locator
    )


def _portions(entries: Sequence[ManifestEntry]) -> Iterator[Sequence[ManifestEntry]]:
    return (entries[at : at + _PORTION] for at in range(0, len(entries), _PORTION))


def _signed(number: int) -> int:
    """A sum in the ledger's form: 64 bits, signed."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number
