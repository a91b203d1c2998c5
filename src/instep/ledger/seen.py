"""The state of tables as runs have seen it: planned with a job, and known once that has ended."""

from __future__ import annotations

import json
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, insert, select, update

from instep.domain.jobs import JobPart
from instep.domain.refs import PartitionRef
from instep.domain.seen import Late, Seen
from instep.ledger.checkpoints import Checkpoint, is_of, lock
from instep.ledger.tables import seen
from instep.ledger.transaction import Store, Transaction, reads, writes

#: Stands for the job of what is served.
_SERVED: Final = ""


class SeenRows(Store):
    """The state that the runs of each generation have seen. It is written with jobs: see `Parts.plan` and `.finish`."""

    @reads
    def get(self, tx: Transaction, known: Checkpoint) -> Seen | None:
        """The state of what the checkpoint names; None: it was built without."""
        row = tx.connection.execute(select(seen.c.body, seen.c.late).where(_of(known))).one_or_none()
        return None if row is None else Seen.decode(row.body, _late(row.late))

    @reads
    def of_instance(self, tx: Transaction, part: JobPart) -> Seen | None:
        """The state of the part's instance: of one that is not served yet, what was planned with its build."""
        here = (seen.c.ref == str(part.ref), seen.c.generation == part.generation, seen.c.instance == part.instance)
        # What is served comes first.
        row = tx.connection.execute(select(seen.c.body, seen.c.late).where(*here).order_by(seen.c.job_id)).first()
        return None if row is None else Seen.decode(row.body, _late(row.late))

    @writes
    def confirm(self, tx: Transaction, known: Checkpoint, found: Seen) -> None:
        """Record the state in which a served index was found to be up to date, unless another job is served by now."""
        if not lock(tx, known):
            return
        here = (seen.c.ref == str(known.ref), seen.c.generation == known.generation, seen.c.job_id == _SERVED)
        tx.connection.execute(delete(seen).where(*here))
        where = {"ref": str(known.ref), "generation": known.generation, "job_id": _SERVED, "instance": known.instance}
        tx.connection.execute(insert(seen).values(**where, **_values(found)))

    @reads
    def of_entity(self, tx: Transaction, entity: str) -> dict[tuple[str, str, str], Seen]:
        """The states of what is served of an entity, by partition, generation and instance."""
        rows = tx.connection.execute(select(seen).where(is_of(seen.c.ref, entity), seen.c.job_id == _SERVED))
        return {(row.ref, row.generation, row.instance): Seen.decode(row.body, _late(row.late)) for row in rows}

    @reads
    def late(self, tx: Transaction, known: Checkpoint) -> Late | None:
        """The last rows that came late."""
        return _late(tx.connection.scalar(select(seen.c.late).where(_of(known))))


def plan(tx: Transaction, job_id: str, part: JobPart, found: Seen | None) -> None:
    """Store what is to be known when this part has ended."""
    if found is None:
        return
    where = {"ref": str(part.ref), "generation": part.generation, "job_id": job_id, "instance": part.instance}
    tx.connection.execute(insert(seen).values(**where, **_values(found)))


def serve(tx: Transaction, job_id: str, part: JobPart) -> None:
    """Record the end of a part whose work is served: what was planned with it is known. If nothing was, what is known
    of the same instance still holds.
    """
    here = (seen.c.ref == str(part.ref), seen.c.generation == part.generation)
    planned = tx.connection.scalar(select(seen.c.job_id).where(*here, seen.c.job_id == job_id))
    if planned is not None:
        tx.connection.execute(delete(seen).where(*here, seen.c.job_id == _SERVED))
        tx.connection.execute(update(seen).where(*here, seen.c.job_id == job_id).values(job_id=_SERVED))


def forget(tx: Transaction, job_id: str, part: JobPart) -> None:
    """Forget what was planned with a part that has ended, when not all of it is served."""
    tx.connection.execute(delete(seen).where(seen.c.ref == str(part.ref), seen.c.job_id == job_id))


def drop(tx: Transaction, ref: PartitionRef) -> None:
    """Forget a partition."""
    tx.connection.execute(delete(seen).where(seen.c.ref == str(ref)))


def _values(found: Seen) -> dict[str, bytes | str | None]:
    late = None if found.late is None else json.dumps(found.late.as_dict())
    return {"body": found.encode(), "late": late}


def _of(known: Checkpoint) -> ColumnElement[bool]:
    return and_(
        seen.c.ref == str(known.ref),
        seen.c.generation == known.generation,
        seen.c.job_id == _SERVED,
        seen.c.instance == known.instance,
    )


def _late(text: str | None) -> Late | None:
    return None if text is None else Late.of(json.loads(text))
