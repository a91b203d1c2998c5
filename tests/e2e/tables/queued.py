"""People whose changes a pending queue in SQLite says: what the application writes, and what a run makes of it.

Tests count people by numbers. Where keys are texts, each number has one, with whatever may be in a text, and in the
same order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import instep
from instep.domain.jobs import JobState
from instep.domain.key_leases import KeyLease
from instep.domain.pending_queue import KeyKind, QueueKey
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
from tests.contracts.pending_texts import IN_ORDER
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
    keys: {keys}
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
NUMBERS = range(1_000)

#: A name that the target cannot hold.
POISON = "poison"


@dataclass
class QueuedShop(QuickShop):
    """`people` has the rows, and `app.db` which of them there are, and which are done."""

    kind: KeyKind = KeyKind.INTEGER

    def begin(self) -> None:
        texts = self.kind is KeyKind.TEXT
        self.declare(PROJECT.replace("{keys}", "text" if texts else "integer"))
        if texts:
            self.types["people"]["id"] = pa.string()
        column = "TEXT NOT NULL" if texts else "INTEGER"
        with self.database() as database:
            database.execute(f"CREATE TABLE people (id {column} PRIMARY KEY, version INTEGER)")
            database.execute(f"CREATE TABLE done (id {column} PRIMARY KEY)")
        with self.store() as store:
            store.create()
            remember_reader(store, switched=True)

    def key(self, number: int) -> QueueKey:
        if self.kind is KeyKind.INTEGER:
            return number
        return IN_ORDER[number] if number < len(IN_ORDER) else f"{IN_ORDER[-1]}{number:04d}"

    def numbers(self, keys: Iterable[QueueKey]) -> list[int]:
        """In order."""
        known = {self.key(number): number for number in NUMBERS}
        return sorted(known[key] for key in keys)

    def database(self) -> Any:
        return sqlite3.connect(self.root / "app.db")

    def store(self) -> closing[PendingStore]:
        return closing(open_queue(instep.load(self.root).project, "fresh"))

    def add(self, *numbers: int, name: str | None = None) -> None:
        """New people, or others under a number that is known."""
        for number in numbers:
            self.put("people", id=self.key(number), name=name or f"person {number}")
        keys = [(self.key(each),) for each in numbers]
        with closing(self.database()) as database, database:
            database.executemany("INSERT OR IGNORE INTO people (id) VALUES (?)", keys)
        self.save()

    def cover(self, *numbers: int) -> None:
        with closing(self.database()) as database, database:
            database.executemany("INSERT INTO done VALUES (?)", [(self.key(each),) for each in numbers])

    def pending(self) -> list[int]:
        with self.store() as store:
            return self.numbers(store.confirm(list(map(self.key, NUMBERS))))

    def indexed(self) -> list[int]:
        return self.numbers(row["id"] for row in self.stored("Person"))

    def held(self) -> dict[int, KeyLease]:
        with self.asked() as ledger:
            found = ledger.key_leases.held("fresh", list(map(self.key, NUMBERS)))
        return {self.numbers([key])[0]: hold for key, hold in found.items()}

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
        return fault.target(replace(setup, queue=EntityQueue(queue.name, queue.kind, faulty)))

    return setup
