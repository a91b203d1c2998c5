"""`PostgresTarget`: the port for tables, method by method; the work is in the modules beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from instep.domain.waves import Mark
from instep.errors import Away, Conflict, Transient, UserError
from instep.targets.postgres import layout, merging, reading, serving, staging, upkeep, values
from instep.targets.postgres.connection import Missing, Place, Session
from instep.targets.postgres.journal import Journal
from instep.targets.postgres.layout import Index, fitting, fitting_specs, known
from instep.targets.postgres.staging import StagedRows
from instep.targets.tables import OWN, Drift, Held, TableSpec, TableWriter, Unfit, spec_of

if TYPE_CHECKING:
    import pyarrow as pa


class _Landed(Exception):
    """Another try of this commit was quicker."""

    def __init__(self, version: int) -> None:
        self.version = version


@dataclass(frozen=True)
class PostgresTarget:
    """Tables in a schema of a PostgreSQL database (`postgresql://user:password@host/database`).

    `keep_seconds` is how long staged rows that nobody committed stay, and records of epochs gone by.
    """

    uri: str = field(repr=False)
    schema: str = "public"
    keep_seconds: float = 3600.0

    kind: Literal["transactional"] = field(default="transactional", init=False)

    def __post_init__(self) -> None:
        self.place.demand_understood()

    @property
    def place(self) -> Place:
        return Place(self.uri, self.schema)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return self.place.shown

    def check(self) -> None:
        try:
            with self.place.session() as session:
                self._check(session)
        except Transient as error:
            raise Away(str(error), hint="Try again later.") from None

    def _check(self, session: Session) -> None:
        ((encoding, standby),) = session.run("SELECT current_setting('server_encoding'), pg_is_in_recovery()")
        if encoding != "UTF8":
            raise UserError(
                f"the database has the encoding {encoding}, which does not hold every text",
                where=self.shown,
                hint="Make one with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            )
        if standby:
            raise UserError("the server is a standby, which cannot be written", where=self.shown)
        layout.prepare(session)
        with session.transaction():
            probe = session.name(f"{layout.OURS}check")
            session.run("DROP TABLE IF EXISTS {probe}", probe=probe)
            session.run("CREATE TABLE {probe} (n int)", probe=probe)
            session.run("DROP TABLE {probe}", probe=probe)

    def create(self, physical: str, specs: Sequence[TableSpec]) -> None:
        specs = fitting_specs(physical, specs)
        with self.place.session() as session:
            layout.prepare(session)
            layout.create(session, physical, specs)
            differing = layout.drift(session, physical, specs)
        if differing:
            raise UserError(
                f"index {physical!r} is there and differs: {differing[0]}",
                where=self.shown,
                hint="Build a new one: instep run --full-refresh",
            )

    def exists(self, physical: str) -> bool:
        fitting(physical)
        with self.place.session() as session:
            return layout.find(session, physical) is not None

    def specs(self, physical: str) -> Sequence[TableSpec]:
        with self._index(physical) as (_, index):
            return index.specs

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        fitting(physical)
        with self.place.session() as session:
            return layout.drift(session, physical, specs)

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterator[Unfit]:
        return values.unfit(spec, rows)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = (), *, scope: str = "") -> int:
        with self._index(physical) as (session, index):
            return Journal(session, index).fence(scope, epoch, marks)

    def writer(self, physical: str, base: int) -> TableWriter:
        with self._index(physical) as (_, index):
            return staging.PostgresTableWriter(self.place, index, base)

    def commit(
        self,
        physical: str,
        *,
        base: int,
        epoch: int,
        attempt: str,
        staged: Sequence[bytes],
        marks: Sequence[Mark],
        scope: str = "",
    ) -> int:
        parts = [part for each in staged for part in staging.decode(each)]
        with self._index(physical) as (session, index):
            journal = Journal(session, index)
            used: list[str] = []
            try:
                with session.transaction():
                    _demand_new(journal, attempt)
                    journal.look(scope, epoch, marks, since=base)
                    used = _merge(session, index, parts)
                    journal.take(scope, epoch)
                    _demand_new(journal, attempt)
                    version = journal.commit(scope, epoch, attempt, marks, base=base)
            except _Landed as landed:
                version = landed.version
            except Conflict:
                # Its staged rows are gone: because they are in, maybe.
                found = journal.find(attempt)
                if found is None:
                    raise
                version = found
            staging.remove(session, used)
        return version

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        with self._index(physical) as (session, index):
            return Journal(session, index).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        with self._index(physical) as (session, index):
            staging.sweep(session, self.keep_seconds)
            Journal(session, index).forget(self.keep_seconds)
            upkeep.tend(session, index, full=full)

    def promote(self, alias: str, physical: str | None, epoch: int, *, scope: str = "") -> None:
        fitting(alias)
        with self.place.session() as session:
            index = None if physical is None else known(session, fitting(physical))
            serving.promote(session, alias, index, epoch, scope)

    def served(self, alias: str) -> str | None:
        fitting(alias)
        with self.place.session() as session:
            return serving.served(session, alias)

    def rows(self, physical: str, kind: str = OWN) -> int:
        with self._index(physical) as (session, index):
            return reading.count(session, physical, spec_of(index.specs, kind))

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        with self._index(physical) as (session, index):
            return reading.held(session, physical, spec_of(index.specs, OWN), instance, prefix=prefix)

    def row(self, physical: str, key: Sequence[Any], kind: str = OWN) -> Mapping[str, Any] | None:
        with self._index(physical) as (session, index):
            spec = spec_of(index.specs, kind)
            where = dict(zip(spec.key, key, strict=True))
            found = reading.read(session, physical, spec, where=where, columns=None).to_pylist()
        return found[0] if found else None

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
            return reading.read(session, physical, spec, where=where or {}, columns=columns)

    def sweep(self, physical: str, instance: str, *, epoch: int, prefix: str = "", scope: str = "") -> None:
        self._delete(physical, epoch, scope, prefix=prefix, but=instance)

    def delete_scope(self, physical: str, prefix: str, *, epoch: int, scope: str = "") -> None:
        if not prefix:
            raise UserError("no namespace was named", hint="Name a traversal path, such as 42/9970/")
        self._delete(physical, epoch, scope, prefix=prefix, but=None)

    def _delete(self, physical: str, epoch: int, scope: str, *, prefix: str, but: str | None) -> None:
        with self._index(physical) as (session, index), session.transaction():
            journal = Journal(session, index)
            journal.look(scope, epoch, (), since=0)
            for spec in index.specs:
                merging.delete(session, physical, spec, prefix=prefix, but=but)
            journal.take(scope, epoch)

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        fitting(alias)
        with self.place.session() as session, contextlib.suppress(Missing):
            return upkeep.leftovers(session, alias, serving.served(session, alias), idle_seconds)
        return []

    def drop(self, physical: str) -> None:
        fitting(physical)
        with self.place.session() as session:
            index = layout.find(session, physical)
            if index is not None:
                staging.remove(session, staging.of_index(session, index))
                layout.drop(session, index)

    @contextlib.contextmanager
    def _index(self, physical: str) -> Iterator[tuple[Session, Index]]:
        fitting(physical)
        with self.place.session() as session:
            yield session, known(session, physical)


def _demand_new(journal: Journal, attempt: str) -> None:
    version = journal.find(attempt)
    if version is not None:
        raise _Landed(version)


def _merge(session: Session, index: Index, parts: Sequence[StagedRows]) -> list[str]:
    """Returns the tables of staged rows that nobody needs once this is committed.

    Raises `Conflict` when not all that was staged is there: the server has crashed since.
    """
    done = []
    # In one order, whoever writes.
    for spec in index.specs:
        for table in sorted({part.table for part in parts if part.kind == spec.kind}):
            own = [part for part in parts if part.table == table]
            tasks, expected = [part.task for part in own], sum(part.rows for part in own)
            found, all_found = staging.count(session, table, tasks)
            if found != expected:
                raise Conflict(f"{index.name}: {expected} rows were staged and {found} are there: stage them again")
            merging.merge(session, index.name, spec, table, tasks)
            if found == all_found:
                done.append(table)
    return done
