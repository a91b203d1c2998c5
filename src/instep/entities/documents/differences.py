"""Compare a target with the source and the ledger, part after part: no more of a corpus is held than a part of it.

All rows of the target are read once, and wait in a file; so do the rows of a table that is the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from instep.domain.discrepancies import Differing, Discrepancy, Truth, discrepancies
from instep.domain.identity import bucket_of
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.deep_looks import Looked, as_indexed, demanded, look, program_of, wrong_chunks
from instep.entities.generations import built, demand_rest
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from instep.document_state.spool import Spool
    from instep.entities.documents.source_parts import SourceParts
    from instep.pipeline.documents.comparison import RowDifference
    from instep.pipeline.documents.pipeline import DocumentProgram

#: So many documents that differ are named; of the others there are numbers.
NAMED: Final = 10_000
#: What is read of each recorded document.
_RECORDED: Final = ("document_id", "uri", "size", "version", "chunks", "digest")


class Example(NamedTuple):
    """A document that differs. `pending`: the next run indexes a change of it; `failed`: it did at the last try;
    `unlike`: what of an altered one differs.
    """

    document: Differing
    pending: bool
    failed: bool
    unlike: RowDifference | None = None


class Number(NamedTuple):
    documents: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences of one generation of a partition: the number of documents whose rows differ from the record, by kind,
    and the first of them. `pending` are numbers of changes of the source, as `counts_of` has them: the next run indexes
    these. `rows` counts all rows in the target, `recorded` all documents in the ledger. `served` says whether readers
    that name no generation read them, if they should. `unread`: documents that a deep comparison could not read.
    """

    ref: PartitionRef
    generation: str
    target: str
    physical: str
    rows: int
    recorded: int
    found: Mapping[Discrepancy, Number]
    examples: Sequence[Example]
    pending: Mapping[str, int]
    served: bool
    problems: Sequence[str]
    unread: int | None = None

    @property
    def differs(self) -> bool:
        return any(each.documents for each in self.found.values()) or not self.served

    @property
    def mendable(self) -> bool:
        """Whether a repair has something to do."""
        return not self.served or any(
            number.documents for kind, number in self.found.items() if kind is not Discrepancy.ALTERED
        )

    @property
    def counts(self) -> dict[str, int]:
        """Number of documents by kind of difference."""
        return {str(kind): number.documents for kind, number in self.found.items()}

    @property
    def changes(self) -> int:
        """The number of changes of the source."""
        return sum(self.pending[each] for each in ("new", "changed", "deleted", "retried"))


class Part(NamedTuple):
    """A part of a corpus. `found` are documents whose rows differ from the record; `truth` is of these, and of all
    after a deep comparison; `changing` are those of them that the next run indexes.
    """

    rows: int
    recorded: int
    found: Sequence[Differing]
    truth: Truth
    changing: Collection[str]
    looked: Looked | None


def compare(
    setup: DocumentAdapters,
    ledger: Ledger,
    generation: str,
    *,
    listing: Callable[[int], None] | None = None,
    deep: bool = False,
    take: Callable[[Part], None] = lambda part: None,
) -> Differences:
    """Compare an index with its source and the ledger. Raises `UserError` when nothing is built, and `Away` when a job
    changes the index during the comparison. `deep`: texts, titles and vectors are compared with new ones made from the
    source. `take` is given each part.
    """
    checkpoint = built(ledger, setup.ref, generation)
    demand_rest(setup, ledger, checkpoint)
    program = demanded(setup, ledger, checkpoint) if deep else None
    rows = recorded = unread = 0
    documents, wrong = Counter[Discrepancy](), Counter[Discrepancy]()
    examples: list[Example] = []
    with _Comparing(setup, ledger, checkpoint, listing, program) as comparing:
        for part in comparing.parts():
            take(part)
            rows, recorded = rows + part.rows, recorded + part.recorded
            unread += part.looked.unread if part.looked else 0
            for each in part.found:
                documents[each.kind] += 1
                wrong[each.kind] += each.rows
            examples += [_example(part, each) for each in part.found[: NAMED - len(examples)]]
    served = (
        ledger.partitions.promoted(setup.ref) != generation or setup.target.served(setup.alias) == checkpoint.physical
    )
    demand_rest(setup, ledger, checkpoint)
    return Differences(
        ref=setup.ref,
        generation=generation,
        target=setup.target_name,
        physical=checkpoint.physical,
        rows=rows,
        recorded=recorded,
        found={
            kind: Number(documents[kind], wrong[kind])
            for kind in Discrepancy
            if deep or kind is not Discrepancy.ALTERED
        },
        examples=examples,
        pending=comparing.source.counts,
        served=served,
        problems=comparing.source.problems,
        unread=unread if deep else None,
    )


def _example(part: Part, document: Differing) -> Example:
    altered = part.looked is not None and document.kind is Discrepancy.ALTERED
    unlike = part.looked.unlike[document.document_id] if part.looked and altered else None
    return Example(document, document.uri in part.changing, document.uri in part.truth.failed, unlike)


class _Comparing:
    """A comparison: of the rows of a target and of a source, which wait in files, with the ledger."""

    def __init__(
        self,
        setup: DocumentAdapters,
        ledger: Ledger,
        checkpoint: Checkpoint,
        listing: Callable[[int], None] | None,
        program: DocumentProgram | None,
    ) -> None:
        from instep.document_state.corpus_parts import parts_for
        from instep.document_state.spool import Spool
        from instep.entities.documents import source_parts
        from instep.pipeline.documents.comparison import HELD

        self._setup, self._ledger, self._checkpoint, self._program = setup, ledger, checkpoint, program
        self._failed = ledger.failures.versions(setup.ref, checkpoint.generation)
        most = (*ledger.documents.totals(checkpoint.instance)[:2], source_parts.rows_of(setup.source))
        self._parts = parts_for(max(most))
        self.source: SourceParts = source_parts.source_parts(
            setup, ledger, checkpoint, self._failed, listing, parts=self._parts
        )
        self._rows: Spool = Spool(HELD, self._parts)

    def __enter__(self) -> _Comparing:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()
        self.source.close()

    def parts(self) -> Iterator[Part]:
        if self._setup.target.exists(self._checkpoint.physical):  # Else it has no rows: all of it is missing.
            self._rows.fill(_held(self._setup.target.contents(self._checkpoint.physical), self._parts))
        return map(self._part, range(self._parts))

    def _part(self, number: int) -> Part:
        from instep.document_state.corpus_parts import bounds
        from instep.pipeline.documents import comparison

        recorded = self._ledger.documents.between(self._checkpoint.instance, bounds(number, self._parts), _RECORDED)
        source = self.source.part(number, recorded)
        held = comparison.compare(self._rows.part(number), recorded)
        entries = self._entries(recorded, None if self._program else held.held)
        found = list(discrepancies(held.held, entries, held.uris))
        uris = {each.uri for each in found} | {each.uri for each in entries.values()}
        changing = source.changing(uris)
        truth = Truth(entries, source.listed(uris), self._failed, self.source.gone, self.source.exhaustive)
        sound = as_indexed(truth, changing)
        looked = None
        if self._program is not None:
            differing = {each.document_id for each in found}
            whole = [each for each in sound if each.document_id not in differing]
            looked = look(self._program, self._setup, self._checkpoint.physical, whole, truth)
            found += [
                Differing(identity, entries[identity].uri, Discrepancy.ALTERED, each.rows)
                for identity, each in looked.unlike.items()
            ]
        stale = {each.document_id for each in found if each.kind is Discrepancy.STALE}
        if stale:
            program = program_of(self._setup, self._ledger, self._checkpoint)
            wrong = wrong_chunks(program, [each for each in sound if each.document_id in stale], truth, held.chunks)
            found = [
                each._replace(rows=wrong.get(each.document_id, each.rows)) if each.kind is Discrepancy.STALE else each
                for each in found
            ]
        return Part(held.rows, recorded.num_rows, found, truth, changing, looked)

    def _entries(self, recorded: pa.Table, ids: Collection[str] | None) -> dict[str, ManifestEntry]:
        """The entries with these ids, or all, by id."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if ids is not None:
            wanted = pa.array(list(ids), pa.string())
            recorded = recorded.filter(pc.is_in(recorded["document_id"], value_set=wanted))
        buckets = self._checkpoint.buckets
        return {
            row["document_id"]: ManifestEntry(bucket=bucket_of(row["document_id"], buckets), document_hash="", **row)
            for row in recorded.to_pylist()
        }


def _held(contents: Iterator[pa.RecordBatch], parts: int) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int32]]]:
    """The rows of an index, as they are compared, and the part of each."""
    import pyarrow as pa

    from instep.document_state.corpus_parts import parts_of_ids
    from instep.pipeline.documents.comparison import held_rows

    for batch in contents:
        rows = held_rows(batch)
        yield rows, parts_of_ids(pa.chunked_array([rows.column(0)]), parts)
