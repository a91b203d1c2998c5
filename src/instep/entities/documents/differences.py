"""Compare a target with the source and the ledger, and plan a repair.

A deep comparison reads, chunks and, for vectors, embeds documents again, all through the cache. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from instep.document_state.columns import ListedColumns
from instep.domain.discrepancies import Differing, Discrepancy, Truth, discrepancies, repairs
from instep.domain.fingerprint import changed_parts
from instep.domain.manifest import Action, Difference, DocumentChange, ManifestEntry, SourceDocument
from instep.domain.planning import cut_documents
from instep.domain.refs import PartitionRef
from instep.domain.texts import amount
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.changes import compared
from instep.entities.generations import built, demand_rest
from instep.entities.plan_request import Found, Kind, Planned, PlanRequest, Refusal
from instep.errors import UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing

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
    from instep.pipeline.documents.row_program import RowProgram

    job = ledger.jobs.get(checkpoint.job_id)
    if job is None or changed_parts(setup.fingerprint, checkpoint.fingerprint):
        return None
    program = setup.programs(job.part(setup.ref).part, 0, setup.target)
    if not isinstance(program, DocumentProgram) or isinstance(program, RowProgram) or program.transformed:
        return None
    return program


def demanded(setup: DocumentAdapters, ledger: Ledger, checkpoint: Checkpoint) -> DocumentProgram:
    """The same program. Raises `UserError` if there is none."""
    program = program_of(setup, ledger, checkpoint)
    if program is None:
        raise UserError(
            f"{setup.ref} cannot be looked at deeply: rows of tables and transforms need Spark, and what is built "
            "otherwise than the project says now is to be rebuilt",
            hint="Compare without --deep, or rebuild it: instep run --full-refresh",
        )
    return program


def as_indexed(truth: Truth, pending: Iterable[DocumentChange]) -> list[ManifestEntry]:
    """Those whose source is unchanged since they were indexed, of the recorded documents in `truth`."""
    changing = {each.uri for each in pending}
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


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences of one generation of a partition. `found` are the documents whose rows differ from the record;
    `pending` are changes of the source that the next run indexes. `rows` counts all rows in the target, `recorded` all
    documents in the ledger; `truth` is of those that differ (of all after a deep comparison). `served` says whether
    readers that name no generation read them, if they should.
    """

    ref: PartitionRef
    generation: str
    target: str
    physical: str
    rows: int
    recorded: int
    found: Sequence[Differing]
    truth: Truth
    pending: Difference
    served: bool
    problems: Sequence[str]
    looked: Looked | None = None

    @property
    def differs(self) -> bool:
        return bool(self.found) or not self.served

    @property
    def mendable(self) -> bool:
        """Whether a repair has something to do."""
        return not self.served or any(each.kind is not Discrepancy.ALTERED for each in self.found)

    @property
    def counts(self) -> dict[str, int]:
        """Number of documents by kind of difference."""
        counted = Counter(each.kind for each in self.found)
        return {str(kind): counted[kind] for kind in self.kinds}

    @property
    def kinds(self) -> Sequence[Discrepancy]:
        """The kinds that were looked for."""
        return [each for each in Discrepancy if self.looked is not None or each is not Discrepancy.ALTERED]


def compare(
    setup: DocumentAdapters,
    ledger: Ledger,
    generation: str,
    *,
    listing: Callable[[int], None] | None = None,
    deep: bool = False,
) -> Differences:
    """Compare an index with its source and the ledger. Raises `UserError` when nothing is built, and `Away` when a job
    changes the index during the comparison. `deep`: texts, titles and vectors are compared with new ones made from the
    source.
    """
    from instep.pipeline.documents import comparison  # Imports Arrow.

    checkpoint = built(ledger, setup.ref, generation)
    demand_rest(setup, ledger, checkpoint)
    program = demanded(setup, ledger, checkpoint) if deep else None
    failed = ledger.failures.versions(setup.ref, generation)
    listed, pending = compared(
        ledger, checkpoint.instance, setup.source.list(listing), failed, buckets=checkpoint.buckets
    )
    manifest = ledger.documents.columns(checkpoint.instance, comparison.RECORDED)
    held = comparison.compare(lambda: _contents(setup, checkpoint.physical), manifest)
    recorded = ledger.documents.of_ids(checkpoint.instance, None if deep else list(held.held))
    found = list(discrepancies(held.held, recorded, held.uris))
    named = None if deep else {each.uri for each in found}
    truth = Truth(recorded, _listed(listed, named), failed, set(listed.deleted), listed.complete and listed.exhaustive)
    sound = as_indexed(truth, pending.changes)
    looked = None
    if program is not None:
        differing = {each.document_id for each in found}
        whole = [each for each in sound if each.document_id not in differing]
        looked = look(program, setup, checkpoint.physical, whole, truth)
        found += [
            Differing(identity, recorded[identity].uri, Discrepancy.ALTERED, each.rows)
            for identity, each in looked.unlike.items()
        ]
    stale = {each.document_id for each in found if each.kind is Discrepancy.STALE}
    if stale:
        entries = [each for each in sound if each.document_id in stale]
        wrong = wrong_chunks(program_of(setup, ledger, checkpoint), entries, truth, held.chunks)
        found = [
            each._replace(rows=wrong.get(each.document_id, each.rows)) if each.kind is Discrepancy.STALE else each
            for each in found
        ]
    served = (
        ledger.partitions.promoted(setup.ref) != generation or setup.target.served(setup.alias) == checkpoint.physical
    )
    demand_rest(setup, ledger, checkpoint)
    return Differences(
        ref=setup.ref,
        generation=generation,
        target=setup.target_name,
        physical=checkpoint.physical,
        rows=held.rows,
        recorded=manifest.num_rows,
        found=found,
        truth=truth,
        pending=pending,
        served=served,
        problems=listed.problems,
        looked=looked,
    )


def _listed(found: Listing, uris: Collection[str] | None) -> dict[str, SourceDocument]:
    """The listed documents with these URIs, or all."""
    documents = found.documents
    if uris is not None and isinstance(documents, ListedColumns):
        documents = documents.named(uris)
    return {each.uri: each for each in documents if uris is None or each.uri in uris}


def _contents(setup: DocumentAdapters, physical: str) -> Iterator[pa.RecordBatch]:
    """The rows of an index; none if it is gone."""
    return setup.target.contents(physical) if setup.target.exists(physical) else iter(())


def find_repairs(setup: DocumentAdapters, request: PlanRequest) -> Found:
    """Find the work of a job that only repairs, as `EntitySetup.find`. Its watermark is that of the served instance:
    changes of the source are left to the next run.
    """
    if request.kind is Kind.REBUILD:
        raise UserError(f"{setup.ref} is to be rebuilt, not repaired: {'; '.join(request.why)}", hint="Run: instep run")
    seen = compare(setup, request.ledger, request.generation, listing=request.listing)
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
        counts={**seen.counts, "unchanged": seen.recorded - _recorded(seen, changes)},
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


def _blocked(setup: DocumentAdapters, seen: Differences, changes: Sequence[DocumentChange]) -> Refusal | None:
    """Refuse to repair with a replaced ledger, which knows none of the rows: else all would be deleted."""
    removed = sum(each.action is Action.DELETE for each in changes)
    documents = seen.recorded + len(changes) - _recorded(seen, changes)
    if not setup.guard.refuses(removed, documents):
        return None
    return Refusal(
        f"a repair would remove {removed:,} of {documents:,} documents; "
        f"more than {setup.guard.share:.0%} at once is not deleted unasked"
    )
