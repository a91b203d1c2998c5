"""Instances: builds of partitions, and what jobs do to them, as events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import func, select

from instep.domain import events as e
from instep.domain.counts import COUNT_FIELDS, Counts
from instep.domain.instances import Instance, InstanceState, Reason, first_reason
from instep.domain.jobs import JobPart
from instep.domain.refs import PartitionRef, event_instance_id
from instep.ledger import checkpoints, event_log, leases
from instep.ledger.leases import Lease
from instep.ledger.loaded_state import instance_of, some_instances
from instep.ledger.tables import canonical, instances, slices
from instep.ledger.transaction import Store, Transaction, reads, writes


class Instances(Store):
    """The instances of each partition: built, in work, or to be built."""

    @writes
    def new(self, tx: Transaction, lease: Lease, reason: Reason, *, generation: str = "", by: str = "") -> str:
        """UUID of the instance of a generation to build under this lease: the canonical one if that is Missing, else
        (there is none: `reason` is taken for the first build of the partition, or of the generation; or it is Live)
        one that is made for this reason by an `InstanceCreated`. Raises `Fenced` without the lease, `Conflict` when the
        canonical one is in work.
        """
        leases.demand(tx, lease)
        head = event_log.lock(tx.connection)
        current = _canonical(tx, lease.ref, generation)
        if current is not None and current.state is InstanceState.MISSING:
            return current.uuid
        ref = str(lease.ref)
        why = reason if current is not None else first_reason(generation)
        (recorded,) = event_log.demand(tx, [e.InstanceCreated(ref=ref, reason=why, generation=generation, by=by)])
        return event_instance_id(ref, generation, recorded.sequence, head.naming)

    @reads
    def canonical(self, tx: Transaction, ref: PartitionRef, generation: str = "") -> Instance | None:
        return _canonical(tx, ref, generation)

    @reads
    def get(self, tx: Transaction, uuid: str) -> Instance | None:
        return some_instances(tx.connection, [uuid]).get(uuid)

    @reads
    def newest(self, tx: Transaction, ref: PartitionRef, limit: int = 100) -> list[Instance]:
        """Read instances of all generations, newest first."""
        found = select(instances.c.uuid, instances.c.body).where(instances.c.ref == str(ref))
        in_order = found.order_by(instances.c.sequence.desc()).limit(limit)
        return [instance_of(row) for row in tx.connection.execute(in_order)]


def begin(
    tx: Transaction, job_id: str, parts: Sequence[JobPart], missed: Iterable[e.DependencyMissed], created_at: int
) -> None:
    """Record that the job works on its instances from now on. Checkpoints of parts without a target will have the
    watermark `created_at`.
    """
    now = max(tx.now(), created_at)
    begun = [_begun(tx, job_id, each, now if each.target is None else each.target) for each in parts]
    event_log.demand(tx, [*begun, *missed])


def _begun(tx: Transaction, job_id: str, part: JobPart, target: int) -> e.Event:
    return _building(job_id, part, target) if part.fresh else _refreshing(tx, job_id, part, target)


def _building(job_id: str, part: JobPart, target: int) -> e.Event:
    return e.InstanceBuilding(
        instance=part.instance,
        job=job_id,
        target=target,
        fingerprint=dict(part.fingerprint),
        revision=part.revision,
        inputs=part.inputs,
    )


def _refreshing(tx: Transaction, job_id: str, part: JobPart, target: int) -> e.Event:
    floor = watermark(tx, part, 0)
    return e.InstanceRefreshing(
        instance=part.instance, job=job_id, floor=floor, target=max(target, floor), inputs=part.inputs
    )


def watermark(tx: Transaction, part: JobPart, reached: int) -> int:
    """The watermark of the part's instance, if it is complete up to `reached`: it never goes back."""
    served = checkpoints.checkpoint(tx, part.ref, part.generation)
    return reached if served is None or served.instance != part.instance else max(reached, served.watermark)


def succeed(tx: Transaction, job_id: str, part: JobPart, reached: int) -> None:
    """Record that the instance is complete up to `reached`, and served. Raises `Conflict` if it cannot be any more."""
    counts = _counts(tx, job_id, part)
    events: list[e.Event]
    if part.fresh:
        live = e.InstanceLive(
            instance=part.instance, job=job_id, watermark=reached, physical=part.physical, counts=counts
        )
        events = [live, e.InstanceServed(instance=part.instance)]
    else:
        events = [e.InstanceRefreshed(instance=part.instance, job=job_id, watermark=reached, counts=counts)]
    event_log.demand(tx, events)


def fail(tx: Transaction, job_id: str, part: JobPart, error: str, *, retry: bool) -> None:
    """Fail the instance that the part builds; nothing happens if the instance is not this job's work any more."""
    kind = e.InstanceFailed if part.fresh else e.RefreshFailed
    event_log.append(tx, [kind(instance=part.instance, job=job_id, error=error, retry=retry)])


def _counts(tx: Transaction, job_id: str, part: JobPart) -> Counts:
    sums = select(*(func.coalesce(func.sum(slices.c[name]), 0).label(name) for name in COUNT_FIELDS))
    here = (slices.c.job_id == job_id, slices.c.ref == str(part.ref))
    return Counts.from_dict(dict(tx.connection.execute(sums.where(*here)).one()._mapping))


def _canonical(tx: Transaction, ref: PartitionRef, generation: str) -> Instance | None:
    is_canonical = (canonical.c.ref == str(ref), canonical.c.generation == generation)
    found = select(instances.c.uuid, instances.c.body).join(canonical, canonical.c.uuid == instances.c.uuid)
    row = tx.connection.execute(found.where(*is_canonical)).one_or_none()
    return None if row is None else instance_of(row)
