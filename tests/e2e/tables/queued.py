"""People whose changes a pending queue in SQLite says: what the application writes, and what a run makes of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import instep
from instep.domain.jobs import JobState
from instep.domain.key_leases import KeyLease
from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.entities.tables.change_queue import EntityQueue
from instep.entities.tables.setup import TableSetup
from instep.ledger.failures import FailureRecord
from instep.ledger.ledger import Ledger
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.open import open_queue
from instep.queues.queue_state import remember_reader
from instep.targets.table_target import TableSpec
from tests.doubles.through import through

from .quick import Fault, QuickShop

PROJECT = """
name: shop
targets:
  index: {{{target}}}
queues:
  fresh:
    on: sqlite:///app.db
    key: id
    source: {{table: people}}
    covered_by: [{{table: done}}]
entities:
  Person:
    source: {{type: spark, path: people}}
    key: id
    watermark: at
    deleted: gone
    changes: {{queue: fresh}}
    node: {{label: Person, properties: [id, name]}}
"""
PERSON = PartitionRef.parse("Person@global")

#: A name that the target cannot hold.
POISON = "poison"


@dataclass
class QueuedShop(QuickShop):
    """`people` has the rows, and `app.db` which of them there are, and which are done."""

    def begin(self) -> None:
        self.declare(PROJECT)
        with self.database() as database:
            database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, version INTEGER)")
            database.execute("CREATE TABLE done (id INTEGER PRIMARY KEY)")
        with self.store() as store:
            store.create()
            remember_reader(store, switched=True)

    def database(self) -> Any:
        return sqlite3.connect(self.root / "app.db")

    def store(self) -> closing[PendingStore]:
        return closing(open_queue(instep.load(self.root).project, "fresh"))

    def add(self, *numbers: int, name: str | None = None) -> None:
        """New people, or others under a number that is known."""
        for number in numbers:
            self.put("people", id=number, name=name or f"person {number}")
        with closing(self.database()) as database, database:
            database.executemany("INSERT OR IGNORE INTO people (id) VALUES (?)", [(each,) for each in numbers])
        self.save()

    def cover(self, *numbers: int) -> None:
        with closing(self.database()) as database, database:
            database.executemany("INSERT INTO done VALUES (?)", [(each,) for each in numbers])

    def pending(self) -> list[int]:
        with self.store() as store:
            return sorted(store.confirm(list(range(1_000))))

    def indexed(self) -> list[int]:
        return sorted(row["id"] for row in self.stored("Person"))

    def held(self) -> dict[int, KeyLease]:
        with self.asked() as ledger:
            return ledger.key_leases.held("fresh", range(1_000))

    def failures(self) -> Sequence[FailureRecord]:
        with self.asked() as ledger:
            return ledger.failures.newest(PERSON)

    def written(self) -> int:
        """By all jobs together."""
        with self.asked() as ledger:
            return sum(job.counts.written for job in ledger.jobs.newest(limit=100))

    def asked(self) -> closing[Ledger]:
        return closing(self.container().ledger())

    def step(self, **options: Any) -> JobState | None:
        return self.run("Person", **options)["Person"].state

    def quick_setup(self, setup: EntitySetup) -> TableSetup:
        quick = super().quick_setup(setup)
        picky: Any = _Picky(quick.target)
        return replace(quick, target=picky)


class _Picky:
    """In front of a target: it cannot hold what is poison."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def unfit(self, spec: TableSpec, batch: pa.RecordBatch) -> Any:
        yield from self._inner.unfit(spec, batch)
        if "name" in batch.schema.names:
            found = pc.equal(batch.column("name"), pa.scalar(POISON)).fill_null(False)
            yield "name", np.asarray(found.to_numpy(zero_copy_only=False)), "poison"


def with_queue(fault: Fault) -> Callable[[TableSetup], EntitySetup]:
    """The setup with this in front of its target and its queue."""

    def setup(setup: TableSetup) -> EntitySetup:
        queue = setup.queue
        assert queue is not None
        faulty: Any = lambda: through(queue.open(), fault.call, "queue.")  # noqa: E731 - it stands for a store
        return fault.target(replace(setup, queue=EntityQueue(queue.name, faulty)))

    return setup
