"""Building blocks of the contract, also for other tests of ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.domain.counts import Counts
from instep.domain.events import DependencyMissed, Event, InstanceImported, WantCanceled, read
from instep.domain.instances import Instance, Reason
from instep.domain.jobs import Claim, Job, JobPart, JobState, PartStatus, SlicePlan, end_of_part
from instep.domain.manifest import Action, DocumentChange, ManifestEntry, decode_changes, encode_changes
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart

REF = PartitionRef.parse("Document@global")
OTHER = PartitionRef.parse("Ticket@42/9970")
START = 1_700_000_000_000


class VirtualClock:
    """Time that passes only when told to."""

    def __init__(self, now: int = START) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds


# Slices and what becomes of them.


def change(number: int, action: Action = Action.INSERT) -> DocumentChange:
    return DocumentChange(action, f"doc_{number:04}", f"file:///docs/{number}.md", 100 + number, "v1", 0, "", "new")


def plan(index: int, documents: Sequence[int], *, work: int = 10, priority: int = 40) -> SlicePlan:
    payload = encode_changes([change(number) for number in documents])
    return SlicePlan(index, 3, "", "", len(documents), work, priority, payload)


def in_columns(of: SlicePlan) -> SlicePlan:
    """The same, as large plans are."""
    import pyarrow as pa

    from instep.document_state.columns import ChangeColumns

    rows = [{**each._asdict(), "action": str(each.action)} for each in of.changes]
    columns = ChangeColumns(pa.Table.from_pylist(rows))
    return replace(of, payload=b"", columns=lambda: columns)


def plans(count: int, *, units: int = 2, work: int = 10) -> list[SlicePlan]:
    return [plan(index, range(index * units, (index + 1) * units), work=work) for index in range(count)]


def part_of(lease: Lease, *, instance: str = "instance-1", fresh: bool = True, generation: str = "") -> JobPart:
    physical, fingerprint = f"{instance}-index", {"chunker": "c1"}
    return JobPart(lease.ref, instance, physical, fingerprint, 16, lease.epoch, 7, fresh, generation=generation)


def new_part(ledger: Ledger, lease: Lease, *, fresh: bool = True) -> JobPart:
    """A part that builds a new instance, or brings the one that is there up to date."""
    if fresh:
        return part_of(lease, instance=ledger.instances.new(lease, Reason.REBUILD))
    if ledger.instances.canonical(lease.ref) is None:
        imported(ledger, lease.ref)
    return part_of(lease, instance=canonical_of(ledger, lease.ref).uuid, fresh=False)


def entry(document: DocumentChange, *, chunks: int = 3, version: str = "v1") -> ManifestEntry:
    return ManifestEntry(
        document.document_id, document.uri, document.size, version, f"hash of {version}", chunks, document.bucket
    )


def outcome(claim: Claim, *, fail: Sequence[int] = (), version: str = "v1") -> SliceOutcome:
    """What a slice would report had it written all its documents but those numbered in `fail`."""
    failing = {change(number).document_id for number in fail}
    changes = decode_changes(claim.payload)
    good = [each for each in changes if each.document_id not in failing]
    bad = [each for each in changes if each.document_id in failing]
    return SliceOutcome(
        claim.slice_id,
        claim.fence,
        Counts(read=len(changes), written=len(good), failed=len(bad), rows_written=3 * len(good)),
        entries=[entry(each, version=version) for each in good],
        failures=[Failure(each.document_id, each.uri, version, "parse", "no text in it") for each in bad],
    )


# Workers, leases, jobs.


def register(ledger: Ledger, *workers: str) -> None:
    known = {each.id for each in ledger.workers.all()}
    for worker in workers:
        if worker not in known:
            ledger.workers.register(worker, kind="run", host="here", pid=1)


def lease_of(ledger: Ledger, worker: str, ref: PartitionRef = REF, *, job_id: str = "job") -> Lease:
    """The lease for a job, which is begun if it is new."""
    register(ledger, worker)
    ledger.jobs.begin(job_id, worker, {})
    lease = ledger.leases.acquire(ref, job_id, worker)
    assert isinstance(lease, Lease)
    return lease


def planned(
    ledger: Ledger,
    slices: Sequence[SlicePlan],
    *,
    job_id: str = "job",
    fresh: bool = True,
    stagger: bool = False,
) -> JobPart:
    """A job of worker `ann` on `REF` that is READY."""
    part = new_part(ledger, lease_of(ledger, "ann", job_id=job_id), fresh=fresh)
    ledger.parts.plan(job_id, [NewPart(part, slices)], stagger=stagger)
    return part


def running(
    ledger: Ledger,
    slices: Sequence[SlicePlan],
    *,
    job_id: str = "job",
    fresh: bool = True,
    stagger: bool = False,
) -> JobPart:
    """A running job of worker `ann` on `REF`."""
    part = planned(ledger, slices, job_id=job_id, fresh=fresh, stagger=stagger)
    ledger.jobs.start(job_id)
    return part


def running_two(ledger: Ledger, slices: Sequence[SlicePlan], others: Sequence[SlicePlan]) -> tuple[JobPart, JobPart]:
    """A running job of worker `ann` with a part on `REF` and one on `OTHER`."""
    part, other = [new_part(ledger, lease_of(ledger, "ann", ref)) for ref in (REF, OTHER)]
    ledger.parts.plan("job", [NewPart(part, slices), NewPart(other, others)])
    ledger.jobs.start("job")
    return part, other


def joined(ledger: Ledger, *workers: str, job_id: str = "job") -> None:
    """These workers take part in the job as well."""
    register(ledger, *workers)
    for worker in workers:
        ledger.jobs.join(job_id, worker)


def job_of(ledger: Ledger, job_id: str = "job") -> Job:
    job = ledger.jobs.get(job_id)
    assert job is not None
    return job


def status_of(ledger: Ledger, ref: PartitionRef = REF, job_id: str = "job") -> PartStatus:
    return job_of(ledger, job_id).part(ref)


def claim_all(ledger: Ledger, worker: str = "ann", job_id: str = "job", ref: PartitionRef = REF) -> list[Claim]:
    return ledger.slices.claim(job_id, ref, worker, work=10**9, limit=1_000)


def complete_all(ledger: Ledger, part: JobPart, worker: str = "ann", job_id: str = "job") -> None:
    """Claim what there is, again and again, and complete it."""
    while claims := claim_all(ledger, worker, job_id, part.ref):
        ledger.slices.complete(part, worker, list(map(outcome, claims)), job_id=job_id)


def take_over(ledger: Ledger, worker: str = "bob", job_id: str = "job", *, dead: str = "ann") -> JobPart:
    """A worker is proved dead, and another one continues the job that has no workers any more."""
    ledger.workers.evict(dead)
    return ledger.parts.adopt(lease_of(ledger, worker, job_id=job_id))


def end(ledger: Ledger, part: JobPart, job_id: str = "job", worker: str = "ann") -> JobState:
    """End a part as a service would, and promote it if there is anything in it. Returns the job's state."""
    assert ledger.parts.begin_finish(job_id, part.ref, worker)
    status = status_of(ledger, part.ref, job_id)
    state = end_of_part(status.slices, status.counts)
    assert state is not None
    promote = state is not JobState.FAILED
    return ledger.parts.finish(job_id, part, state, worker_id=worker, promote=promote)


def fail(
    ledger: Ledger, part: JobPart, job_id: str = "job", *, worker: str = "ann", error: str = "no luck"
) -> JobState:
    """Give a part up. Returns the job's state."""
    return ledger.parts.finish(job_id, part, JobState.FAILED, worker_id=worker, error=error)


def state_of_everything(ledger: Ledger, part: JobPart, job_id: str = "job") -> object:
    """All that a reader can see; equal before and after means that nothing was changed."""
    return (
        ledger.jobs.get(job_id),
        ledger.documents.entries(part.instance),
        ledger.failures.newest(),
        ledger.checkpoints.get(part.ref),
        ledger.jobs.unfinished(part.ref),
        ledger.open_parts.on([REF, OTHER]),
        ledger.events.rows(),
        ledger.instances.newest(part.ref),
        ledger.wants.newest(),
    )


# Instances and wants.


def canonical_of(ledger: Ledger, ref: PartitionRef = REF) -> Instance:
    instance = ledger.instances.canonical(ref)
    assert instance is not None
    return instance


def logged(ledger: Ledger, after: int = 0) -> list[Event]:
    """What was appended after an event, in order."""
    found = [each.event for each in read(ledger.events.rows(after))]
    return [event for event in found if isinstance(event, Event)]


def imported(ledger: Ledger, ref: PartitionRef = REF, *, watermark: int = START) -> Instance:
    """An instance that is Live and served, and no checkpoint of it."""
    ledger.events.append(
        [
            InstanceImported(
                ref=str(ref), build=1, job="before", watermark=watermark, physical="old", fingerprint={"chunker": "c1"}
            )
        ]
    )
    return canonical_of(ledger, ref)


def upstream_fails(ledger: Ledger, part: JobPart, job_id: str = "job") -> None:
    """The part's instance waits for another partition, and that is canceled: its build fails, or its refresh."""
    want = f"want of {job_id}"
    missed = DependencyMissed(job=job_id, instances=(part.instance,), want=want, missing=("Upstream@global",))
    ledger.events.append([missed, WantCanceled(want=want, by="ann")])
