"""Adopt an index that another ledger made, after inspecting its content.

The ledger is written first, the target second. As long as the target names another ledger as the owner, this ledger can
neither write nor drop the index: a crash at any point leaves the served index as it is, and the next adoption does the
rest.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.jobs import JobPart, JobState
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome
from instep.entities.setup import EntitySetup, Inspection
from instep.errors import Conflict, Fenced, UserError
from instep.jobs.lease_holder import LeaseHolder, lease_holder
from instep.ledger.leases import Lease
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
        return self.setup.ref

    @property
    def live(self) -> bool:
        """Whether the adopted index stays in use; else the next run builds a new one beside it."""
        return self.inspection is not None and self.why_not is None

    def as_dict(self) -> dict[str, Any]:
        return {
            "ref": str(self.ref),
            "generation": self.generation,
            "target": self.setup.target_name,
            "alias": self.alias,
            "physical": self.physical,
            "owner": self.whose,
            "live": self.live,
            "rebuild": self.why_not,
            "found": self.inspection.as_dict() if self.inspection else None,
            "adopted": self.done,
        }


def find(setup: EntitySetup, context: Context, generation: str) -> Adoption | None:
    """Find the index of a partition that can be adopted; None if there is none. Writes nothing. Raises `UserError` if
    the index must not be adopted.
    """
    target, ledger = setup.target, context.ledger
    alias = setup.alias_of(generation) or setup.alias
    whose = target.owner_of(alias)
    checkpoint = ledger.checkpoints.get(setup.ref, generation)
    if whose is None and (checkpoint is None or target.mine(checkpoint.physical)):
        return None
    physical = target.served(alias) if whose is not None else checkpoint.physical if checkpoint else None
    if physical is not None and not target.exists(physical):
        physical = None
    found = Adoption(setup, alias, physical, whose or "", generation)
    if physical is None:
        return replace(found, why_not="nothing is there that is served")
    if checkpoint is not None and target.exists(checkpoint.physical):
        known = checkpoint.physical == physical
        return replace(found, why_not=None if known else f"this ledger has built {checkpoint.physical} itself")
    context.progress.say(setup.ref.label, f"looking at {physical}")
    inspection, why_not = setup.inspect(physical)
    return replace(found, inspection=inspection, why_not=why_not)


def adopt(found: Adoption, context: Context, *, by: str = "") -> Adoption:
    """Make this ledger the owner. Raises `Busy` while a job works on the partition. Idempotent."""
    if found.live and found.physical is not None:
        _Registration(found, context, by).run()
    _claim(found, context)
    return replace(found, done=True)


def _holder(found: Adoption, context: Context) -> AbstractContextManager[LeaseHolder]:
    hint = "Adopt it when that has ended, or stop the job."
    return lease_holder(context, {"adopt": str(found.ref)}, hint=hint)


class _Registration:
    """Register the adopted index in the ledger, as a job without work of its own."""

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
            lease = self._give_up(holder.hold(setup.ref), holder)
            generation = self._found.generation
            instance = ledger.instances.new(lease, Reason.REBUILD, generation=generation, by=self._by)
            part = JobPart(
                setup.ref,
                instance,
                self._physical,
                setup.fingerprint,
                setup.buckets,
                lease.epoch,
                0,
                True,
                revision=setup.revision(),
                generation=generation,
            )
            ledger.parts.plan(lease.job_id, [NewPart(part, self._inspection.slices)])
            ledger.jobs.start(lease.job_id)
            self._complete(part, lease, holder.worker_id)
            if not ledger.parts.begin_finish(lease.job_id, setup.ref, holder.worker_id):
                raise Conflict(f"job {lease.job_id} still has open slices")
            mine = holder.worker_id
            ledger.parts.finish(lease.job_id, part, JobState.COMPLETED, worker_id=mine, promote=True, whole=True)

    def _give_up(self, lease: Lease, holder: LeaseHolder) -> Lease:
        """End the unfinished job of an adoption that crashed, or of a first build that was stopped. The target has
        nothing of it.
        """
        ledger, ref = self._context.ledger, self._found.ref
        left = ledger.jobs.unfinished(ref, self._found.generation)
        if left is None:
            return lease
        lease = ledger.leases.transfer(lease, left.id)
        ledger.jobs.join(left.id, holder.worker_id)
        part = ledger.parts.adopt(lease)
        ledger.parts.finish(
            left.id, part, JobState.FAILED, worker_id=holder.worker_id, error="given up for an adoption"
        )
        return holder.hold(ref)

    def _complete(self, part: JobPart, lease: Lease, worker_id: str) -> None:
        ledger, entries = self._context.ledger, self._inspection.entries
        while claims := ledger.slices.claim(lease.job_id, part.ref, worker_id, work=sys.maxsize, limit=64):
            outcomes = []
            for claim in claims:
                here = [entries[each] for each in self._inspection.documents_of(claim)]
                kept = sum(each.chunks for each in here)
                counts = Counts(read=len(here), skipped=len(here), rows_kept=kept)
                outcomes.append(SliceOutcome(claim.slice_id, claim.fence, counts, here))
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
        return f"it goes on being used: {found.inspection.words}"
    if found.why_not is None:
        return "this ledger knows it: it goes on with it, however new what the target has seen is"
    built = "" if found.physical is None else "; the next run rebuilds it, and it is served until then"
    return f"{found.why_not}{built}"
