"""What a target holds against what the source and the ledger say. Nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.domain.discrepancies import Differing, Discrepancy, Truth, discrepancies
from instep.domain.manifest import Difference, difference
from instep.domain.refs import PartitionRef
from instep.errors import Away
from instep.ledger.port import Checkpoint, Ledger
from instep.service.documents.changes import counts_of
from instep.service.generations import built

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.service.documents.setup import DocumentSetup


@dataclass(frozen=True, slots=True)
class Differences:
    """Of one generation of a partition. `found` are the documents whose rows differ from what is recorded; `pending` is
    what the next run would do, because the source has changed. `rows` are all in the target. `served` says whether
    those who ask for no generation read them, if they should.
    """

    ref: PartitionRef
    generation: str
    target: str
    physical: str
    rows: int
    found: Sequence[Differing]
    truth: Truth
    pending: Difference
    served: bool
    problems: Sequence[str]

    @property
    def differs(self) -> bool:
        return bool(self.found) or not self.served

    @property
    def counts(self) -> dict[str, int]:
        """How many documents differ in which way."""
        counted = Counter(each.kind for each in self.found)
        return {str(kind): counted[kind] for kind in Discrepancy}

    def as_dict(self) -> dict[str, Any]:
        rows = Counter[Discrepancy]()
        for each in self.found:
            rows[each.kind] += each.rows
        changing = {each.uri for each in self.pending.changes}
        return {
            "ref": str(self.ref),
            "generation": self.generation,
            "target": self.target,
            "physical": self.physical,
            "rows": self.rows,
            "served": self.served,
            "differs": self.differs,
            "found": {kind: {"documents": self.counts[kind], "rows": rows[Discrepancy(kind)]} for kind in self.counts},
            "pending": counts_of(self.pending),
            "documents": [
                {
                    **each._asdict(),
                    "kind": str(each.kind),
                    "pending": each.uri in changing,
                    "failed": each.uri in self.truth.failed,
                }
                for each in self.found
            ],
            "problems": list(self.problems),
        }


def compare(
    setup: DocumentSetup, ledger: Ledger, generation: str, *, listing: Callable[[int], None] | None = None
) -> Differences:
    """Raises `UserError` when nothing is built, and `Away` when a job changes it meanwhile."""
    from instep.documents import comparing  # Brings Arrow.

    checkpoint = built(ledger, setup.ref, generation)
    _demand_rest(setup, ledger, checkpoint)
    listed = setup.source.list(listing)
    manifest, failed = ledger.manifest(checkpoint.instance), ledger.failed_versions(setup.ref, generation)
    exhaustive = listed.complete and listed.exhaustive
    recorded = {each.document_id: each for each in manifest.values()}
    held = comparing.compare(lambda: _contents(setup, checkpoint.physical), recorded)
    served = ledger.promoted(setup.ref) != generation or setup.target.served(setup.alias) == checkpoint.physical
    _demand_rest(setup, ledger, checkpoint)
    return Differences(
        ref=setup.ref,
        generation=generation,
        target=setup.target_name,
        physical=checkpoint.physical,
        rows=held.rows,
        found=list(discrepancies(held.held, recorded, held.uris)),
        truth=Truth(recorded, {each.uri: each for each in listed.documents}, failed, set(listed.deleted), exhaustive),
        pending=difference(
            listed.documents, manifest, failed, complete=exhaustive, buckets=checkpoint.buckets, deleted=listed.deleted
        ),
        served=served,
        problems=listed.problems,
    )


def _contents(setup: DocumentSetup, physical: str) -> Iterator[pa.RecordBatch]:
    """Nothing is in an index that is gone."""
    return setup.target.contents(physical) if setup.target.exists(physical) else iter(())


def _demand_rest(setup: DocumentSetup, ledger: Ledger, checkpoint: Checkpoint) -> None:
    """A job's rows are in the target before they are in the ledger."""
    job = ledger.unfinished_job(setup.ref, checkpoint.generation)
    part = job.part(setup.ref).part if job else None
    if job and part and part.physical == checkpoint.physical:
        raise Away(
            f"{setup.ref}: job {job.id} has not ended, so the target is ahead of the ledger",
            hint="Compare when it has; `instep run` goes on with it.",
        )
    if ledger.checkpoint(setup.ref, checkpoint.generation) != checkpoint:
        raise Away(f"{setup.ref} was brought up to date while it was compared", hint="Compare again.")
