"""Batches of texts at an embedder's batch API: written down before they are submitted, so that none is lost."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import delete, exists, insert, or_, select, update

from instep.ledger.tables import embedding_batches, workers
from instep.ledger.transaction import Store, Transaction, reads, writes

#: Milliseconds for which the batch of a worker that is gone stays after all.
_KEEP: Final = 20 * 24 * 3_600_000


class SubmittedBatch(NamedTuple):
    """A batch by our key for it. `batch_id` is the API's; None: it is not known whether it was submitted. `made_at` is
    when it was written down, `age` how long ago that was, both in milliseconds. `finished`: some worker has all that it
    gave, and it is paid for.
    """

    key: str
    batch_id: str | None
    made_at: int
    age: int
    finished: bool


class EmbeddingBatches(Store):
    """The batches of each entity and embedder. A batch is deleted when the worker that made it has all its vectors.
    That of a worker that is gone stays for some days: several servers may need what it gave.
    """

    @writes
    def intend(self, tx: Transaction, key: str, entity: str, embedder: str, worker_id: str) -> None:
        """Record a batch that is about to be submitted."""
        old = embedding_batches.c.finished.is_(True), embedding_batches.c.made_at < tx.now() - _KEEP
        tx.connection.execute(delete(embedding_batches).where(*old))
        values = {"entity": entity, "embedder": embedder, "worker_id": worker_id, "made_at": tx.now()}
        tx.connection.execute(insert(embedding_batches).values(batch_key=key, finished=False, **values))

    @writes
    def submitted(self, tx: Transaction, key: str, batch_id: str) -> None:
        """Record that the batch was submitted: this is the API's name for it."""
        here = embedding_batches.c.batch_key == key
        tx.connection.execute(update(embedding_batches).where(here).values(batch_id=batch_id))

    @writes
    def release(self, tx: Transaction, worker_id: str) -> None:
        """Release the batches of a worker that does not go on with them, so that others may."""
        here = embedding_batches.c.worker_id == worker_id
        tx.connection.execute(update(embedding_batches).where(here).values(worker_id=""))

    @writes
    def finish(self, tx: Transaction, key: str, worker_id: str) -> None:
        """Forget a batch: this worker has all its vectors."""
        here = embedding_batches.c.batch_key == key
        tx.connection.execute(delete(embedding_batches).where(here, embedding_batches.c.worker_id == worker_id))
        tx.connection.execute(update(embedding_batches).where(here).values(finished=True))

    @writes
    def forget(self, tx: Transaction, key: str) -> None:
        """Forget a batch that was never submitted."""
        tx.connection.execute(delete(embedding_batches).where(embedding_batches.c.batch_key == key))

    @reads
    def left(self, tx: Transaction, entity: str, embedder: str, worker_id: str) -> list[SubmittedBatch]:
        """The batches of this worker, and of workers that are gone or do not go on with them; the oldest first."""
        maker = exists().where(workers.c.id == embedding_batches.c.worker_id)
        here = (embedding_batches.c.entity == entity, embedding_batches.c.embedder == embedder)
        mine = or_(embedding_batches.c.worker_id == worker_id, ~maker)
        order = (embedding_batches.c.made_at, embedding_batches.c.batch_key)
        found = tx.connection.execute(select(embedding_batches).where(*here, mine).order_by(*order))
        return [
            SubmittedBatch(row.batch_key, row.batch_id, row.made_at, tx.now() - row.made_at, bool(row.finished))
            for row in found
        ]
