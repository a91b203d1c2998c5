"""What jobs do to instances, as events: which one is to be built, that it is in work, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from instep.domain import events as e
from instep.domain.counts import COUNT_FIELDS, Counts
from instep.domain.instances import InstanceState, Reason, first_reason
from instep.domain.jobs import JobPart
from instep.domain.refs import event_instance_id
from instep.domain.state import Rejected
from instep.errors import Conflict
from instep.ledger import event_rows, leases, manifest, projections
from instep.ledger.ledger import Lease, NewPart
from instep.ledger.tables import slices
from instep.ledger.transaction import Transaction


def demand(tx: Transaction, events: Sequence[e.Event]) -> list[e.Recorded]:
    """Append them all."""
    appended = event_rows.append(tx, events)
    if isinstance(appended, Rejected):
        raise Conflict(appended.reason)
    return appended


def new_instance(tx: Transaction, lease: Lease, reason: Reason, generation: str, by: str) -> str:
    leases.demand(tx, lease)
    head = event_rows.lock(tx.connection)
    current = projections.current(tx.connection, lease.ref, generation)
    if current is not None and current.state is InstanceState.MISSING:
        return current.uuid
    ref = str(lease.ref)
    why = reason if current is not None else first_reason(generation)
    (recorded,) = demand(tx, [e.InstanceCreated(ref=ref, reason=why, generation=generation, by=by)])
    return event_instance_id(ref, generation, recorded.sequence, head.naming)


def begin(tx: Transaction, job_id: str, new: Sequence[NewPart], created_at: int) -> None:
    """The job works on its instances from now on. Checkpoints of parts without a target will have the watermark
    `created_at`.
    """
    now, parts = max(tx.now(), created_at), [each.part for each in new]
    begun = [_begun(tx, job_id, each, now if each.target is None else each.target) for each in parts]
    demand(tx, [*begun, *(missed for each in new for missed in each.missed)])


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
    """Up to when the part's instance is complete, if it is up to `reached`: it never goes back."""
    served = manifest.checkpoint(tx, part.ref, part.generation)
    return reached if served is None or served.instance != part.instance else max(reached, served.watermark)


def succeed(tx: Transaction, job_id: str, part: JobPart, reached: int) -> None:
    """The instance is complete up to here, and served. Raises `Conflict` when it cannot be any more."""
    counts = _counts(tx, job_id, part)
    events: list[e.Event]
    if part.fresh:
        live = e.InstanceLive(
            instance=part.instance, job=job_id, watermark=reached, physical=part.physical, counts=counts
        )
        events = [live, e.InstanceServed(instance=part.instance)]
    else:
        events = [e.InstanceRefreshed(instance=part.instance, job=job_id, watermark=reached, counts=counts)]
    demand(tx, events)


def fail(tx: Transaction, job_id: str, part: JobPart, error: str, *, retry: bool) -> None:
    """What was begun has failed; nothing happens if the instance is not this job's work any more."""
    kind = e.InstanceFailed if part.fresh else e.RefreshFailed
    event_rows.append(tx, [kind(instance=part.instance, job=job_id, error=error, retry=retry)])


def _counts(tx: Transaction, job_id: str, part: JobPart) -> Counts:
    sums = select(*(func.coalesce(func.sum(slices.c[name]), 0).label(name) for name in COUNT_FIELDS))
    here = (slices.c.job_id == job_id, slices.c.ref == str(part.ref))
    return Counts.from_dict(dict(tx.connection.execute(sums.where(*here)).one()._mapping))
