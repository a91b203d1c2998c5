"""Partitions as a whole: what is promoted of them, which indexes they need, and how they are forgotten."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, select, true

from instep.domain import events as e
from instep.domain.refs import PartitionRef
from instep.ledger import checkpoints as checkpoint_rows
from instep.ledger import documents, event_log, job_transitions, parts
from instep.ledger import jobs as job_rows
from instep.ledger import leases as lease_rows
from instep.ledger import seen as seen_rows
from instep.ledger.leases import Lease
from instep.ledger.loaded_state import some_promoted
from instep.ledger.tables import canonical, checkpoints, failures, job_parts, jobs, want_refs
from instep.ledger.transaction import Store, Transaction, reads, writes


class Partitions(Store):
    """The partitions, each with all its generations."""

    @reads
    def promoted(self, tx: Transaction, ref: PartitionRef) -> str | None:
        """The generation of readers that name none; None while nothing is served."""
        return some_promoted(tx.connection, [str(ref)]).get(str(ref))

    @reads
    def indexes(self, tx: Transaction, entity: str) -> set[str]:
        """Physical indexes of the entity that are needed: those of checkpoints and of open parts (stopped ones too), of
        all partitions and generations.
        """
        begun = (
            select(job_parts.c.physical)
            # Only such jobs have open parts, and they are few.
            .join(jobs, jobs.c.id == job_parts.c.job_id)
            .where(jobs.c.state.in_(job_rows.UNFINISHED), job_parts.c.state.is_(None))
            .where(checkpoint_rows.is_of(job_parts.c.ref, entity))
        )
        served = select(checkpoints.c.physical).where(checkpoint_rows.is_of(checkpoints.c.ref, entity))
        return {*tx.connection.scalars(begun), *tx.connection.scalars(served)}

    @reads
    def made(self, tx: Transaction, names: Collection[str]) -> set[str]:
        """Select the physical indexes that were built or written by jobs that are not forgotten."""
        there = select(job_parts.c.physical).where(job_parts.c.physical.in_(names)).distinct()
        return set(tx.connection.scalars(there))

    @reads
    def replaced(self, tx: Transaction, ref: PartitionRef) -> set[str]:
        """Indexes of the partition that jobs built that are not forgotten, and that no generation serves."""
        served = select(checkpoints.c.physical).where(checkpoints.c.ref == str(ref))
        built = select(job_parts.c.physical).where(job_parts.c.ref == str(ref), job_parts.c.physical.not_in(served))
        return set(tx.connection.scalars(built))

    @reads
    def all_indexes(self, tx: Transaction) -> set[str]:
        """Physical indexes that its jobs have ever made or written."""
        return set(tx.connection.scalars(select(job_parts.c.physical).distinct()))

    @writes
    def drop(self, tx: Transaction, lease: Lease, *, by: str = "") -> None:
        """Forget that the partition is indexed, in all its generations: it is as if it had never been, and its history
        stays. Appends one `PartitionDropped`, if there is anything of it or a want on it: then wants on it are
        canceled. Its checkpoints, their manifests, and its failures go in the same transaction; open parts on it, of
        jobs that were stopped, are FAILED. Again it changes nothing. Raises `Fenced` without the lease.
        """
        ref = str(lease.ref)
        here = (job_parts.c.ref == ref, job_parts.c.state.is_(None))
        before = {
            job_id: job_transitions.demand(tx, job_id)
            for job_id in tx.connection.scalars(
                select(job_parts.c.job_id).where(*here).order_by(job_parts.c.job_id)
            ).all()
        }
        lease_rows.demand(tx, lease)
        for job_id, state in before.items():
            row = parts.lock_open(tx, job_id, lease.ref)
            if row is not None:
                parts.fail_open(tx, row, f"{ref} was dropped", state)
        _forget(tx, lease.ref)
        event_log.lock(tx.connection)
        generations = _known_generations(tx, ref)
        if generations:
            event_log.demand(tx, [e.PartitionDropped(ref=ref, generations=tuple(generations), by=by)])


def _forget(tx: Transaction, ref: PartitionRef) -> None:
    """Checkpoints of all generations, their manifests, and failures."""
    for each in checkpoint_rows.of_partition(tx, ref):
        documents.drop(tx, each.instance)
    for table in (checkpoints, failures):
        tx.connection.execute(delete(table).where(table.c.ref == str(ref)))
    seen_rows.drop(tx, ref)


def _known_generations(tx: Transaction, ref: str) -> list[str]:
    """The generations that exist, or that are wanted."""
    there = select(canonical.c.generation).where(canonical.c.ref == ref)
    wanted = select(want_refs.c.generation).where(want_refs.c.ref == ref, want_refs.c.open == true())
    return sorted({*tx.connection.scalars(there), *tx.connection.scalars(wanted)})
