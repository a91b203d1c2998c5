"""Ledgers with something in them, filled through the port as workers do."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.jobs import Claim, Job, JobPart, JobState, SlicePlan
from instep.domain.manifest import Action, DocumentChange, decode_changes, encode_changes
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart

#: Documents in a slice.
UNITS = 5
JOB = "1f0c0000-aaaa-4000-8000-000000000001"
ANN, BOB = "aaaa1111-0000-4000-8000-000000000001", "bbbb2222-0000-4000-8000-000000000002"


def a_slice(index: int) -> SlicePlan:
    changes = [
        DocumentChange(Action.INSERT, f"doc_{index:04}_{n}", f"file:///docs/{index}/{n}.md", 100, "v1", 3, "", "new")
        for n in range(UNITS)
    ]
    return SlicePlan(index, 3, "", "", UNITS, 10, 40, encode_changes(changes))


def begin(
    ledger: Ledger,
    *,
    job_id: str = JOB,
    entities: Sequence[str] = ("Document",),
    slices: int = 4,
    worker: str = ANN,
    kind: str = "run",
) -> list[JobPart]:
    """A running job that `worker` planned and takes part in."""
    register(ledger, worker, kind=kind)
    ledger.jobs.begin(job_id, worker, {"full_refresh": True, "entities": list(entities)})
    parts = []
    for entity in entities:
        lease = ledger.leases.acquire(PartitionRef(entity), job_id, worker)
        assert isinstance(lease, Lease)
        instance = ledger.instances.new(lease, Reason.FIRST)
        parts.append(JobPart(lease.ref, instance, f"{instance}-index", {"chunker": "c1"}, 16, lease.epoch, 7, True))
    ledger.parts.plan(job_id, [NewPart(part, [a_slice(index) for index in range(slices)]) for part in parts])
    ledger.jobs.start(job_id)
    return parts


def register(ledger: Ledger, worker: str, *, kind: str = "worker", host: str = "server-1", pid: int = 4711) -> None:
    ledger.workers.register(worker, kind=kind, host=host, pid=pid)


def claim(ledger: Ledger, part: JobPart, slices: int, *, worker: str = ANN, job_id: str = JOB) -> list[Claim]:
    return ledger.slices.claim(job_id, part.ref, worker, work=10 * slices, limit=slices)


def complete(
    ledger: Ledger, part: JobPart, slices: int, *, worker: str = ANN, job_id: str = JOB, failed: int = 0
) -> None:
    """Claim and complete slices; so many documents of each fail."""
    claims = claim(ledger, part, slices, worker=worker, job_id=job_id)
    assert len(claims) == slices
    ledger.slices.complete(part, worker, [_outcome(each, failed) for each in claims], job_id=job_id)


def _outcome(claimed: Claim, failed: int) -> SliceOutcome:
    bad = decode_changes(claimed.payload)[:failed]
    return SliceOutcome(
        claimed.slice_id,
        claimed.fence,
        Counts(read=UNITS, written=UNITS - failed, failed=failed, rows_written=3 * (UNITS - failed)),
        failures=[Failure(each.document_id, each.uri, each.version, "parse", "no text in it") for each in bad],
    )


def finish(ledger: Ledger, part: JobPart, state: JobState, *, worker: str = ANN, job_id: str = JOB) -> None:
    assert ledger.parts.begin_finish(job_id, part.ref, worker)
    ledger.parts.finish(job_id, part, state, worker_id=worker, promote=state is not JobState.FAILED)


def stop(ledger: Ledger, job_id: str = JOB) -> None:
    assert ledger.jobs.request_stop(job_id, "stopped by a test") is JobState.STOPPED


def job_of(ledger: Ledger, job_id: str = JOB) -> Job:
    job = ledger.jobs.get(job_id)
    assert job is not None
    return job
