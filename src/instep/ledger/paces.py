"""Paces of entities, as measured in their jobs: what later plans are estimated by."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from instep.domain.planning import Measured
from instep.ledger.tables import paces
from instep.ledger.transaction import Store, Transaction, reads, writes


class Paces(Store):
    """One for each entity, way of doing it (`how`) and engine: the newest."""

    @writes
    def record(self, tx: Transaction, entity: str, how: str, measured: Measured) -> None:
        """Replace what was measured before."""
        here = (paces.c.entity == entity, paces.c.how == how, paces.c.engine == measured.engine)
        tx.connection.execute(delete(paces).where(*here))
        tx.connection.execute(
            insert(paces).values(
                entity=entity,
                how=how,
                engine=measured.engine,
                cores=measured.cores,
                work=measured.work,
                milliseconds=measured.milliseconds,
                job_id=measured.job_id,
            )
        )

    @reads
    def of(self, tx: Transaction, entity: str, how: str) -> list[Measured]:
        """The pace with each engine, by its name."""
        columns = [paces.c[name] for name in ("engine", "cores", "work", "milliseconds", "job_id")]
        found = select(*columns).where(paces.c.entity == entity, paces.c.how == how).order_by(paces.c.engine)
        return [Measured(*row) for row in tx.connection.execute(found)]
