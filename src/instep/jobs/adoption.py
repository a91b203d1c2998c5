"""Adopt an index that another ledger made, after inspecting its content.

The ledger is written first, the target second. As long as the target names another ledger as the owner, this ledger can
neither write nor drop the index: a crash at any point leaves the served index as it is, and the next adoption does the
rest.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from instep.domain.counts import Counts
from instep.domain.events import InstanceTainted
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobPart, JobState
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome
from instep.entities.ownership import foreign, replaced
from instep.entities.setup import EntitySetup, Inspection
from instep.errors import Conflict, Fenced, UserError
from instep.jobs.lease_holder import LeaseHolder, lease_holder
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from instep.planning.context import Context

#: The epoch is doubled until the target accepts it: this is more often than any epoch can need.
_DOUBLINGS = 62


@dataclass(frozen=True)
class Adoption:
    """One partition's index that can be adopted, and the result. `whose`: the ledger that owns the alias; empty if it
    names none. `inspection`: the content of the index, as far as it decides whether the index stays in use. `why_not`:
    why it does not. `done`: this ledger owns it now.
    """

    setup: EntitySetup
    alias: str
    physical: str | None
    whose: str
    generation: str
    inspection: Inspection | None = None
    why_not: str | None = None
    done: bool = False

    @property
    def ref(self) -> PartitionRef:
        """The partition that the index is adopted for."""
        return self.setup.ref

    @property
    def live(self) -> bool:
        """Whether the adopted index stays in use; else the next run builds a new one beside it."""
        return self.inspection is not None and self.why_not is None


def find(setup: EntitySetup, context: Context, generation: str) -> Adoption | None:
    """Find the index of a partition that can be adopted; None if there is none. Writes nothing. Raises `UserError` if
    the index must not be adopted.
    """
    target, ledger = setup.target, context.ledger
    alias = setup.alias_of(generation) or setup.alias
    whose = target.owner_of(alias)
    checkpoint = ledger.checkpoints.get(setup.ref, generation)
    if foreign(setup, ledger, generation) is None and replaced(setup, ledger, generation) is None:
        return None
    physical = target.served(alias) if whose is not None else checkpoint.physical if checkpoint else None
    if physical is not None and not target.exists(physical):
        physical = None
    found = Adoption(setup, alias, physical, whose or "", generation)
    if physical is None:
        return replace(found, why_not="nothing is served there")
    context.progress.say(setup.ref.label, f"looking at {physical}")
    recorded = ledger.documents.entries(checkpoint.instance) if checkpoint and checkpoint.physical == physical else None
    inspection, why_not = setup.inspect(physical, recorded)
    return replace(found, inspection=inspection, why_not=why_not)


def adopt(found: Adoption, context: Context, *, by: str = "") -> Adoption:
    """Make this ledger the owner. Raises `Busy` while a job works on the partition. Idempotent."""
    if found.live:
        _Registration(found, context, by).run()
    else:
        _taint(found, context, by)
    _claim(found, context)
    return replace(found, done=True)


def _holder(found: Adoption, context: Context) -> AbstractContextManager[LeaseHolder]:
    hint = "Adopt it when that has ended, or stop the job."
    return lease_holder(context, {"adopt": str(found.ref)}, hint=hint)


def _taint(found: Adoption, context: Context, by: str) -> None:
    """Have the next run rebuild what this ledger has a record of, since the target holds something else by now."""
    ledger, ref = context.ledger, found.ref
    with _holder(found, context) as holder:
        _give_up(found, holder.hold(ref), holder, ledger)
        current = ledger.instances.canonical(ref, found.generation)
        if current is not None and current.state is InstanceState.LIVE:
            why = "this ledger was replaced by an older one, and does not know what is in the target"
            ledger.events.append([InstanceTainted(instance=current.uuid, why=why, by=by)])


def _give_up(found: Adoption, lease: Lease, holder: LeaseHolder, ledger: Ledger) -> Lease:
    """End the partition's unfinished job: of an adoption that crashed, of a first build that was stopped, or one that
    an older ledger has not seen the end of.
    """
    left = ledger.jobs.unfinished(found.ref, found.generation)
    if left is None:
        return lease
    lease = ledger.leases.transfer(lease, left.id)
    ledger.jobs.join(left.id, holder.worker_id)
    part = ledger.parts.adopt(lease)
    ledger.parts.finish(left.id, part, JobState.FAILED, worker_id=holder.worker_id, error="given up for an adoption")
    return holder.hold(found.ref)


class _Registration:
    """Register the adopted index in the ledger, as a job without work of its own: a build, or of an index that the
    ledger knows a refresh of the documents that are not as it has recorded them.
    """

    def __init__(self, found: Adoption, context: Context, by: str) -> None:
        assert found.inspection is not None, "it was looked at"
        assert found.physical is not None, "there is something"
        self._found = found
        self._inspection = found.inspection
        self._physical = found.physical
        self._context = context
        self._by = by

    def run(self) -> None:
        ledger, setup = self._context.ledger, self._found.setup
        with _holder(self._found, self._context) as holder:
            lease = _give_up(self._found, holder.hold(setup.ref), holder, ledger)
            part = self._part(lease)
            if part is None:
                return
            ledger.parts.plan(lease.job_id, [NewPart(part, self._inspection.slices)])
            ledger.jobs.start(lease.job_id)
            self._complete(part, lease, holder.worker_id)
            if not ledger.parts.begin_finish(lease.job_id, setup.ref, holder.worker_id):
                raise Conflict(f"job {lease.job_id} still has open slices")
            mine = holder.worker_id
            ledger.parts.finish(lease.job_id, part, JobState.COMPLETED, worker_id=mine, promote=True, whole=True)

    def _part(self, lease: Lease) -> JobPart | None:
        """The part of the job; None if nothing is to be registered."""
        ledger, setup, generation = self._context.ledger, self._found.setup, self._found.generation
        known = ledger.checkpoints.get(setup.ref, generation)
        if known is None or known.physical != self._physical:
            instance = ledger.instances.new(lease, Reason.REBUILD, generation=generation, by=self._by)
            made, target = (setup.fingerprint, setup.buckets), None
        else:
            current = ledger.instances.canonical(setup.ref, generation)
            is_live = current is not None and current.uuid == known.instance and current.state is InstanceState.LIVE
            if not self._inspection.slices or not is_live:
                return None  # It is as recorded, or is rebuilt anyway.
            instance, made, target = known.instance, (known.fingerprint, known.buckets), known.watermark
        return JobPart(
            setup.ref,
            instance,
            self._physical,
            *made,
            lease.epoch,
            0,
            known is None or instance != known.instance,
            revision=setup.revision(),
            generation=generation,
            target=target,
        )

    def _complete(self, part: JobPart, lease: Lease, worker_id: str) -> None:
        ledger, entries = self._context.ledger, self._inspection.entries
        while claims := ledger.slices.claim(lease.job_id, part.ref, worker_id, work=sys.maxsize, limit=64):
            outcomes = []
            for claim in claims:
                documents = self._inspection.documents_of(claim)
                here = [entries[each] for each in documents if each in entries]
                kept = sum(each.chunks for each in here)
                counts = Counts(read=len(documents), skipped=len(documents), rows_kept=kept)
                lost = [each for each in documents if each not in entries]
                outcomes.append(SliceOutcome(claim.slice_id, claim.fence, counts, here, lost))
            ledger.slices.complete(part, worker_id, outcomes, job_id=lease.job_id)


def _claim(found: Adoption, context: Context) -> None:
    """Write the new owner to the target, and get an epoch newer than all that the target has seen."""
    setup, target, ledger = found.setup, found.setup.target, context.ledger
    checkpoint = ledger.checkpoints.get(setup.ref, found.generation)
    serve = checkpoint.physical if checkpoint and target.exists(checkpoint.physical) else found.physical
    with _holder(found, context) as holder:
        lease = holder.hold(setup.ref)
        for name in (found.physical, serve, found.alias):
            if name is not None and (whose := target.owner_of(name)) is not None:
                target.claim(name, of=whose)
        for _ in range(_DOUBLINGS):
            try:
                for physical in {each for each in (found.physical, serve) if each and setup.target.exists(each)}:
                    setup.target.fence(physical, lease.epoch)
                setup.target.promote(found.alias, serve, lease.epoch)
            except (Fenced, Conflict):
                since = context.clock.monotonic()
                lease = ledger.leases.transfer(lease, lease.job_id, above=2 * lease.epoch)
                holder.heartbeat.keep(lease, since=since)
            else:
                break
    if found.inspection and found.live and setup.target.rows(serve or "") != found.inspection.rows:
        raise UserError(
            f"another process wrote to {serve} while it was adopted",
            where=setup.ref.label,
            hint=f"It belongs to this ledger now. See what differs, and repair it: instep diff {setup.alias} --repair",
        )


def verdict(found: Adoption) -> str:
    """The consequence of adopting it, as text."""
    if found.live and found.inspection:
        return f"it stays in use: {found.inspection.words}"
    built = "" if found.physical is None else "; the next run rebuilds it, and it is served until then"
    return f"{found.why_not}{built}"
