"""The declaration and the adapters of an entity of a table, which the functions on it share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from instep.domain.columns import Column
from instep.domain.graph import GraphTable
from instep.domain.manifest import DeleteGuard
from instep.domain.planning import MAX_SLICES_PER_ENTITY
from instep.domain.refs import Scope
from instep.domain.rows import Neighbour, RowColumns
from instep.entities.setup import EntitySetup
from instep.entities.tables.change_queue import EntityQueue
from instep.ledger.ledger import Ledger
from instep.sources.tables.table_source import Sessions, TableSource
from instep.targets.table_target import TableSpec, TableTarget

#: Watermarks of rows are in microseconds, those of the ledger in milliseconds.
MICROS = 1_000


@dataclass(frozen=True, slots=True)
class Slicing:
    """The slicing of rows. `slices` is None for as many as the rows need. `asked`: rows per slice, given by the
    user.
    """

    slices: int | None
    even: bool
    slice_rows: int
    work_factor: float
    asked: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableAdapters(EntitySetup):
    """The setup of an entity of rows, with its adapters. `columns` and `tables` read the sources' schema, once. `lag`:
    how far below the greatest watermark rows may still come, in milliseconds. `queue` says what needs work, if there is
    one. `declared` are the namespaces of the project. `reconcile`: how often all keys are compared, in milliseconds.
    `mapping`: whether fields of the target are declared.
    """

    target: TableTarget
    source: TableSource
    spark: Sessions
    rows: RowColumns
    slicing: Slicing
    lag: int
    batch_rows: int
    guard: DeleteGuard
    columns: Callable[[], tuple[Column, ...]]
    tables: Callable[[], tuple[GraphTable, ...]]
    queue: EntityQueue | None = None
    reconcile: int | None = None
    declared: tuple[Scope, ...] = ()
    mapping: bool = False

    @property
    def in_place(self) -> bool:
        return self.rows.scope is not None

    @property
    def scanned(self) -> bool:
        return True

    @property
    def most_claims(self) -> int:
        """The most slices of a wave, which are one scan, and have only their counts in a commit."""
        return MAX_SLICES_PER_ENTITY

    @property
    def specs(self) -> Sequence[TableSpec]:
        return [TableSpec.of(table) for table in self.tables()]

    def others(self, ledger: Ledger) -> tuple[Scope, ...] | None:
        """The other namespaces that are indexed: declared, or built because a user asked for them. A row that is in
        none of them, and not in this one, may have been here. None when no row moves: there are no namespaces, or they
        tell rows apart that are alike otherwise.
        """
        if self.rows.scope is None or self.rows.scope in self.rows.key:
            return None
        own = self.ref.scope
        return tuple(each for each in self.indexed(ledger) if not (each.within(own) or own.within(each)))

    def neighbours(self, ledger: Ledger, physical: str) -> tuple[Neighbour, ...]:
        """Other namespaces in this index whose version is known."""
        known, own = ledger.seen.of_entity(self.ref.entity), self.ref.scope
        found = []
        for each in ledger.checkpoints.of_entity(self.ref.entity):
            seen = known.get((str(each.ref), each.generation, each.instance))
            there = each.physical == physical and not (each.ref.scope.within(own) or own.within(each.ref.scope))
            if there and seen is not None and seen.version is not None:
                found.append(Neighbour(each.ref.scope, seen.version.number))
        return tuple(found)

    def indexed(self, ledger: Ledger) -> tuple[Scope, ...]:
        """List all namespaces that are indexed, in order."""
        built = (each.ref.scope for each in ledger.checkpoints.of_entity(self.ref.entity))
        return tuple(sorted({*self.declared, *built}))
