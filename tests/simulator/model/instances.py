"""What jobs make of instances, as events."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from instep.domain import events as e
from instep.domain.instances import Instance, InstanceState, Reason, first_reason
from instep.domain.jobs import JobPart
from instep.domain.lineage import history
from instep.domain.refs import PartitionRef
from instep.domain.state import Rejected
from instep.domain.wants import Want, WantState
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Lease
from instep.ledger.parts import NewPart
from tests.simulator.model import leases, log
from tests.simulator.model.tables import JobRow, PartRow, Tables


def new(tables: Tables, lease: Lease, reason: Reason, generation: str, by: str) -> str:
    if leases.held(tables, lease) is None:
        raise Fenced(f"the lease of {lease.ref} was lost")
    ref = str(lease.ref)
    current = tables.state.current(ref, generation)
    if current is None or current.state is InstanceState.LIVE:
        why = first_reason(generation) if current is None else reason
        log.append(tables, [e.InstanceCreated(ref=ref, reason=why, generation=generation, by=by)])
        return tables.state.canonical[ref, generation]
    if current.state is not InstanceState.MISSING:
        raise Conflict(f"{ref} is {current.state}: job {current.worked_on_by} works on it")
    return current.uuid


def begin(tables: Tables, job: JobRow, parts: Sequence[NewPart]) -> None:
    """A job begins to work on the instances of its parts. Raises `Conflict` when one of them cannot be."""
    missed = [each for new in parts for each in new.missed]
    log.append(tables, [*(_begun(tables, job, new.part) for new in parts), *missed])


def _begun(tables: Tables, job: JobRow, part: JobPart) -> e.Event:
    floor = watermark(tables, part)
    target = max(max(tables.now(), job.created_at) if part.target is None else part.target, floor)
    if part.fresh:
        return e.InstanceBuilding(
            instance=part.instance,
            job=job.id,
            target=target,
            fingerprint=dict(part.fingerprint),
            revision=part.revision,
            inputs=part.inputs,
        )
    return e.InstanceRefreshing(instance=part.instance, job=job.id, floor=floor, target=target, inputs=part.inputs)


def watermark(tables: Tables, part: JobPart) -> int:
    """Up to when the part's instance is complete already."""
    served = tables.checkpoints.get((part.ref, part.generation))
    return served.watermark if served is not None and served.instance == part.instance else 0


def promoted(tables: Tables, job: JobRow, row: PartRow, reached: int) -> Rejected | None:
    """The instance is complete and served now, unless something has happened to it in between."""
    part, events = row.part, list[e.Event]()
    if part.fresh:
        events = [
            e.InstanceLive(
                instance=part.instance, job=job.id, watermark=reached, physical=part.physical, counts=row.counts
            ),
            e.InstanceServed(instance=part.instance),
        ]
    else:
        events = [e.InstanceRefreshed(instance=part.instance, job=job.id, watermark=reached, counts=row.counts)]
    result = log.attempt(tables, events)
    return result if isinstance(result, Rejected) else None


def failed(tables: Tables, job: JobRow, part: JobPart, error: str, *, retry: bool) -> None:
    """The build or the refresh has failed; nothing is said of an instance that is not this job's work any more."""
    kind = e.InstanceFailed if part.fresh else e.RefreshFailed
    log.attempt(tables, [kind(instance=part.instance, job=job.id, error=error, retry=retry)])


def dropped(tables: Tables, ref: PartitionRef, by: str) -> None:
    state = tables.state
    known = {generation for each, generation in (*state.canonical, *state.open) if each == str(ref)}
    if known:
        log.append(tables, [e.PartitionDropped(ref=str(ref), generations=tuple(sorted(known)), by=by)])


def of(tables: Tables, ref: PartitionRef, limit: int) -> list[Instance]:
    return history(tables.state, str(ref))[:limit]


def wants(tables: Tables, ref: PartitionRef | None, *, open_only: bool, after: str | None, limit: int) -> list[Want]:
    newest = iter(reversed(tables.state.wants.values()))
    if after is not None:
        any(each.id == after for each in newest)  # What comes behind it is left.
    found = [each for each in newest if (ref is None or str(ref) in each.refs) and not (open_only and each.state.ended)]
    return found[:limit]


def startable_wants(tables: Tables, refs: Collection[PartitionRef]) -> list[Want]:
    now, state, known = log.present(tables), tables.state, {str(each) for each in refs}
    found = dict.fromkeys(
        next((id for id in waiting if state.wants[id].can_begin(now)), None)
        for (ref, _), waiting in state.open.items()
        if ref in known
    )
    return [each for id, each in state.wants.items() if id in found]


def open_refs(tables: Tables, *, in_hand: bool = False) -> list[PartitionRef]:
    now, state = log.present(tables), tables.state

    def wanted(want: Want) -> bool:
        return not in_hand or want.state is not WantState.IDLE or want.can_begin(now)

    found = {ref for (ref, _), waiting in state.open.items() if any(wanted(state.wants[id]) for id in waiting)}
    return sorted(map(PartitionRef.parse, found))
