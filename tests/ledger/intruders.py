"""Who changes a ledger in a database behind its back."""

from __future__ import annotations

import msgspec
from sqlalchemy import Engine, delete, func, insert, select, update

from instep.domain.instances import Instance
from instep.ledger.tables import event_head, events, instances


class SqlIntruder:
    """Implements `fixtures.Intruder` of the contract, by connections of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(write=True)

    def write(self, kind: str, version: int, body: str) -> None:
        with self._engine.begin() as connection:
            last, at = connection.execute(select(func.max(events.c.sequence), func.max(events.c.at))).one()
            row = {"sequence": (last or 0) + 1, "at": at or 1}
            connection.execute(insert(events).values(kind=kind, version=version, body=body, **row))
            head = {"last": row["sequence"], "at": row["at"]}
            connection.execute(update(event_head).values(**head))

    def store(self, instance: Instance) -> None:
        with self._engine.begin() as connection:
            body = msgspec.json.encode(instance).decode()
            here = instances.c.uuid == instance.uuid
            connection.execute(update(instances).where(here).values(state=instance.state.value, body=body))

    def forget(self, instance: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(instances).where(instances.c.uuid == instance))
