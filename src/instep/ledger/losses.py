"""Losses of indexes by jobs, and sources that could not be listed as a whole."""

from __future__ import annotations

from sqlalchemy import delete, insert, or_, select, update

from instep.domain.jobs import JobPart
from instep.domain.promotion_rules import Loss, PartLoss, lost_by
from instep.domain.refs import PartitionRef
from instep.domain.storable import storable
from instep.ledger import leases
from instep.ledger.tables import job_parts, listing_problems
from instep.ledger.transaction import Store, Transaction, reads, writes


class Losses(Store):
    """Losses without a request, and sources that could not be listed as a whole."""

    @writes
    def count(self, tx: Transaction, part: JobPart, loss: Loss, *, job_id: str) -> None:
        """Count a loss of the part beyond what was planned. Repeated after a lost reply it counts twice: then a person
        is asked a little earlier. Raises `Fenced` if the part's epoch is not the lease's any more.
        """
        leases.demand_epoch(tx, job_id, part)
        more = {
            "lost_units": job_parts.c.lost_units + loss.units,
            "lost_rows": job_parts.c.lost_rows + loss.rows,
        }
        here = (job_parts.c.job_id == job_id, job_parts.c.ref == str(part.ref))
        tx.connection.execute(update(job_parts).where(*here).values(more))

    @reads
    def lately(self, tx: Transaction, ref: PartitionRef, generation: str, *, window: int) -> Loss:
        """Sum the losses of parts on this generation that are open, or ended less than `window` (ms) ago: since the
        last one that was `allowed`.
        """
        told = (job_parts.c.lost_units, job_parts.c.lost_rows, job_parts.c.allowed)
        here = (job_parts.c.ref == str(ref), job_parts.c.generation == generation)
        counts = or_(job_parts.c.lost_units > 0, job_parts.c.lost_rows > 0, job_parts.c.allowed)
        young = or_(job_parts.c.finished_at.is_(None), job_parts.c.finished_at > tx.now() - window)
        found = tx.connection.execute(select(*told).where(*here, counts, young).order_by(job_parts.c.epoch))
        return lost_by(PartLoss(Loss(row.lost_units, row.lost_rows), bool(row.allowed)) for row in found)

    @writes
    def tell_listing(self, tx: Transaction, ref: PartitionRef, problem: str | None) -> None:
        """Store the reason why not all of a partition's source could be seen at the last look, or that it could."""
        tx.connection.execute(delete(listing_problems).where(listing_problems.c.ref == str(ref)))
        if problem is not None:
            tx.connection.execute(insert(listing_problems).values(ref=str(ref), problem=storable(problem)))

    @reads
    def listing_problem(self, tx: Transaction, ref: PartitionRef) -> str | None:
        """The problem of the last listing, if it had one."""
        found = select(listing_problems.c.problem).where(listing_problems.c.ref == str(ref))
        problem: str | None = tx.connection.scalar(found)
        return problem
