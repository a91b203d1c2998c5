"""Spending: what jobs have paid for embedding, by month, and what waves have reserved of a budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Row, and_, delete, exists, func, insert, select, update

from instep.domain.money import Bill, Granted, Spent, month_of
from instep.ledger.tables import embedding_batches, reservations, spending, workers
from instep.ledger.transaction import Store, Transaction, batches, reads, writes

#: The row of no job is what transactions about a month's money lock.
_LOCK: Final = ""


class Spending(Store):
    """Reservations count as spent until they are paid, and for good if their worker is gone: so what all workers on
    all servers spend in a month never exceeds the limit, whatever dies.
    """

    @writes
    def reserve(
        self, tx: Transaction, entity: str, *, job_id: str, worker_id: str, wave: str, wanted: int, limit: int | None
    ) -> Granted:
        """Reserve the amount that a wave wants, or what is left of the limit in this month. Again for the same wave it
        changes nothing.
        """
        month = month_of(tx.now())
        _lock(tx, entity, month)
        made = tx.connection.execute(select(reservations).where(reservations.c.wave == wave)).one_or_none()
        for row in tx.connection.execute(_left_behind(entity, worker_id, wave)).all():
            _paid(tx, row, Bill(), row.cost)
        of_month = and_(spending.c.entity == entity, spending.c.month == month)
        spent = int(tx.connection.scalar(select(func.sum(spending.c.cost)).where(of_month)) or 0)
        others = and_(reservations.c.entity == entity, reservations.c.month == month, reservations.c.wave != wave)
        held = int(tx.connection.scalar(select(func.sum(reservations.c.cost)).where(others)) or 0)
        if made is not None:
            return Granted(made.month, made.cost, made.cost < wanted, spent, held)
        cost = wanted if limit is None else max(0, min(wanted, limit - spent - held))
        values = {"wave": wave, "entity": entity, "month": month, "job_id": job_id, "worker_id": worker_id}
        tx.connection.execute(insert(reservations).values(**values, cost=cost))
        return Granted(month, cost, cost < wanted, spent, held)

    @writes
    def pay(self, tx: Transaction, wave: str, bill: Bill | None, cost: int) -> None:
        """Record the cost of a wave, in the month in which it was reserved; without a bill, all that was reserved.
        Repeated, it changes nothing.
        """
        made = tx.connection.execute(select(reservations).where(reservations.c.wave == wave)).one_or_none()
        if made is not None:
            _lock(tx, made.entity, made.month)
            _paid(tx, made, bill or Bill(), made.cost if bill is None else cost)

    @reads
    def of_jobs(self, tx: Transaction, job_ids: Collection[str]) -> Mapping[str, Mapping[str, Spent]]:
        """Read the spending of these jobs, by entity."""
        found: dict[str, dict[str, Spent]] = {}
        for some in batches(job_ids):
            for row in tx.connection.execute(select(spending).where(spending.c.job_id.in_(some))):
                of_job = found.setdefault(row.job_id, {})
                of_job[row.entity] = of_job.get(row.entity, Spent()).plus(Spent(row.texts, row.tokens, row.cost))
        return found

    @reads
    def this_month(self, tx: Transaction, entity: str) -> int:
        """The amount that is spent or reserved in this month."""
        month = month_of(tx.now())
        sums = [
            select(func.sum(each.c.cost)).where(each.c.entity == entity, each.c.month == month)
            for each in (spending, reservations)
        ]
        return sum(int(tx.connection.scalar(each) or 0) for each in sums)


def _lock(tx: Transaction, entity: str, month: str) -> None:
    here = {"entity": entity, "month": month, "job_id": _LOCK}
    locked = select(spending.c.cost).where(*(spending.c[name] == value for name, value in here.items()))
    if tx.connection.execute(locked.with_for_update()).one_or_none() is None:
        # Of two that insert it at once one is tried again.
        tx.connection.execute(insert(spending).values(**here, texts=0, tokens=0, cost=0))


def _left_behind(entity: str, worker_id: str, wave: str) -> Any:
    """Reservations of workers that are gone, or have another wave by now: nobody will say what they have cost. Of a
    batch the worker that goes on with it will.
    """
    batch = exists().where(embedding_batches.c.batch_key == reservations.c.wave)
    alive = exists().where(workers.c.id == reservations.c.worker_id, workers.c.id != worker_id)
    here = (reservations.c.entity == entity, reservations.c.wave != wave)
    return select(reservations).where(*here, ~alive, ~batch)


def _paid(tx: Transaction, made: Row[Any], bill: Bill, cost: int) -> None:
    gone = tx.connection.execute(delete(reservations).where(reservations.c.wave == made.wave))
    if not gone.rowcount:
        return
    here = {"entity": made.entity, "month": made.month, "job_id": made.job_id}
    more = {
        "texts": spending.c.texts + bill.texts,
        "tokens": spending.c.tokens + bill.tokens,
        "cost": spending.c.cost + cost,
    }
    where = [spending.c[name] == value for name, value in here.items()]
    if not tx.connection.execute(update(spending).where(*where).values(more)).rowcount:
        tx.connection.execute(insert(spending).values(**here, texts=bill.texts, tokens=bill.tokens, cost=cost))
