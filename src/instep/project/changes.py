"""Check entities that take their changes from a pending queue: it is declared, and has the same rows."""

from __future__ import annotations

from collections.abc import Mapping

from instep.project.entities import Entity
from instep.project.fields import problem
from instep.project.queues import Queue
from instep.project.tables import TableEntity


def check_changes(entities: Mapping[str, Entity], queues: Mapping[str, Queue]) -> None:
    taken: dict[str, str] = {}
    for name, entity in entities.items():
        if not isinstance(entity, TableEntity) or entity.changes is None:
            continue
        wanted, path = entity.changes.queue, (name, "changes", "queue")
        if wanted not in queues:
            raise problem("queue", "no such queue", path=path, allowed=list(queues))
        if wanted in taken:
            message = f"{taken[wanted]} takes from this queue already, and a key is given once: declare another"
            raise problem("queue", message, path=path)
        taken[wanted] = name
        _check_rows(name, entity, wanted, queues[wanted])


def _check_rows(name: str, entity: TableEntity, wanted: str, queue: Queue) -> None:
    if entity.key != (queue.key,):
        message = f"the queue {wanted} is about the column {queue.key}: that has to be the key, and alone"
        raise problem("key", message, path=(name, "key"))
    table = entity.source.table
    # The place may be another one, such as a replica.
    if table and _own(table) != _own(queue.source.table):
        message = f"the queue {wanted} is about the table {queue.source.table}: read that, or declare another queue"
        raise problem("table", message, path=(name, "source", "table"))


def _own(table: str) -> str:
    """Without database and schema, which one of the two may say and the other not."""
    return table.rpartition(".")[2].strip('`"').lower()
