"""`PostgresTarget`: the port for tables, method by method; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from instep.postgres.connection import Missing, Name, Session, names
from instep.targets.postgres import encoding, layout, registry, rows, staging
from instep.targets.postgres.aliases import View
from instep.targets.postgres.indexes import PostgresIndexes
from instep.targets.postgres.journal import Journal
from instep.targets.postgres.layout import TableIndex, fitting_specs, stored_type
from instep.targets.postgres.registry import Record, checked, fitting
from instep.targets.table_indexes import TableIndexes
from instep.targets.table_target import DELETED, OWN, Drift, Held, TableSpec, TableWriter, Unfit, spec_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PostgresTarget(TableIndexes, PostgresIndexes[TableIndex]):
    """Tables."""

    scope: str = field(default="", kw_only=True)

    def check(self) -> None:
        with checked(self.place):
            pass

    def _make(self, physical: str, specs: Sequence[TableSpec]) -> None:
        specs = fitting_specs(physical, specs)
        with self.place.session() as session:
            registry.prepare(session)
            layout.create(session, physical, specs, self.owner.id, shared=bool(self.scope))

    def exists(self, physical: str) -> bool:
        fitting(physical)
        with self.place.session() as session:
            return layout.exists(session, physical)

    def specs(self, physical: str) -> Sequence[TableSpec]:
        with self._index(physical) as (_, index):
            return index.specs

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        fitting(physical)
        with self.place.session() as session:
            return layout.drift(session, physical, specs)

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterator[Unfit]:
        return encoding.unfit(spec, rows)

    def writer(self, physical: str, base: int) -> TableWriter:
        with self._index(physical) as (_, index):
            return staging.PostgresTableWriter(self.place, index, base)

    def leaving(self, physical: str, staged: Sequence[bytes]) -> int:
        parts = [part for each in staged for part in staging.decode(each) if part.kind == OWN and part.moved]
        if not parts:
            return 0
        with self._index(physical) as (session, index):
            spec, table = spec_of(index.specs, OWN), parts[0].table
            try:
                return sum(
                    rows.leaving(session, physical, spec, table, tasks, moved=moved, prefix=self.scope)
                    for moved, tasks in staging.moved_tasks(parts)
                )
            except Missing:
                return 0  # They are in: `commit` finds that, or asks for them once more.

    def rows(self, physical: str, kind: str = OWN) -> int:
        with self._index(physical) as (session, index):
            return rows.count(session, physical, spec_of(index.specs, kind))

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        with self._index(physical) as (session, index):
            return rows.held(session, physical, spec_of(index.specs, OWN), instance, prefix=prefix)

    def read(
        self,
        physical: str,
        kind: str = OWN,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        with self._index(physical) as (session, index):
            spec = spec_of(index.specs, kind)
            return rows.read(session, physical, spec, where=where or {}, columns=columns)

    def _delete(self, physical: str, epoch: int, *, prefix: str, but: str | None) -> None:
        self.demand(physical)
        with self._index(physical) as (session, index), session.transaction():
            journal = Journal(session, index)
            journal.look(self.scope, epoch, (), since=0)
            for spec in index.specs:
                rows.delete(session, physical, spec, prefix=prefix, but=but)
            journal.take(self.scope, epoch)

    @property
    def _partition(self) -> str:
        return self.scope

    def _index_of(self, session: Session, physical: str, record: Record) -> TableIndex:
        return layout.index_of(session, physical, record)

    def _tend(self, session: Session, index: TableIndex, *, full: bool) -> None:
        registry.tend(session, index.tables, full=full)

    def _move(
        self, session: Session, index: TableIndex, staged: Sequence[bytes], *, attempt: str, base: int
    ) -> list[str]:
        parts = [part for each in staged for part in staging.decode(each)]
        done = []
        # In one order for all writers.
        for spec in index.specs:
            for table in sorted({part.table for part in parts if part.kind == spec.kind}):
                own = [part for part in parts if part.table == table]
                alone = staging.demand_all(session, index, table, own)
                rows.merge(session, index.name, spec, table, [part.task for part in own if not part.moved])
                for moved, tasks in staging.moved_tasks(own):
                    rows.delete_moved(session, index.name, spec, table, tasks, moved=moved, prefix=self.scope)
                if alone:
                    done.append(table)
        return done

    def _views(self, session: Session, index: TableIndex) -> list[View]:
        found = []
        for spec in index.specs:
            columns = {each.name: stored_type(each.type) for each in spec.all_columns if each.name != DELETED}
            query = sql.SQL("SELECT {columns} FROM {table} WHERE NOT {deleted}").format(
                columns=names(list(columns)), table=session.name(spec.table(index.name)), deleted=Name(DELETED)
            )
            found.append(View(spec.kind, columns, query))
        return found
