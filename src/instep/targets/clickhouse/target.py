"""`ClickHouseTarget`: the port for tables, method by method; the work is in the modules beside it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from instep.clickhouse import embedded, server
from instep.clickhouse.session import DATABASE, STAGED, ServerAddress, Session, is_server, literal, quoted, records
from instep.domain.waves import Mark
from instep.errors import Away, Transient, UserError
from instep.targets.clickhouse import journal, layout, reading, staging
from instep.targets.clickhouse.journal import Journal, guard, guard_values
from instep.targets.clickhouse.staging import StagedFile
from instep.targets.ownership import NO_OWNER, Owner, checked_name
from instep.targets.probe import probe
from instep.targets.table_indexes import TableIndexes
from instep.targets.table_target import JOURNAL, OWN, Drift, Held, TableSpec, TableWriter, spec_of

if TYPE_CHECKING:
    import pyarrow as pa

#: A table of more parts is merged when its engine has no time of its own for it: in process, where it is open only
#: while a thread works with it.
_PARTS = 12

#: Staged files stay so many times as long as what is committed: a wave of a live worker takes no day.
_WAVES = 24

#: Inserts at once: each may take some hundred MB.
_INSERTS = 4

#: An insert is one block, whatever the files' batches: so it becomes one part, whole or not at all. It is read by one
#: thread, in order: what comes sorted need not be sorted. Rows of one key in it are left to merges and FINAL: looking
#: for them here takes as long again as writing (1,000,000 rows, 2 cores: 2.2 instead of 1.0 seconds of processor time).
_ONE_BLOCK = (
    "max_threads = 1, "
    "max_block_size = 4000000, max_insert_block_size = 4000000, min_insert_block_size_rows = 4000000, "
    "min_insert_block_size_bytes = 0, max_insert_threads = 1, insert_null_as_default = 1, optimize_on_insert = 0"
)


@dataclass(frozen=True)
class ClickHouseTarget(TableIndexes):
    """Tables in ClickHouse: in this process (chdb) under a folder, or on a server (`http://user:password@host/database`).

    Tasks stage files in `staging`, which tasks and driver must both reach (default: in the folder; for a server it has
    to be named). `keep_seconds` is how long records of old epochs stay; staged files without a
    commit stay for a day of such hours.
    """

    uri: str = field(repr=False)
    staging: str = ""
    keep_seconds: float = 3600.0
    owner: Owner = field(default=NO_OWNER, kw_only=True)
    scope: str = field(default="", kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    def __post_init__(self) -> None:
        # Tasks may run in another working directory: relative paths become absolute here.
        if not is_server(self.uri):
            path = unquote(urlsplit(self.uri).path) if self.uri.startswith("file://") else self.uri
            object.__setattr__(self, "uri", str(Path(path).expanduser().resolve()))
        elif not self.staging:
            raise UserError(
                "a ClickHouse server needs a staging folder",
                where=self._address.shown,
                hint="Name a folder or URL that the driver and all tasks reach: staging: /shared/instep-staging",
            )
        if self.staging and "://" not in self.staging:
            object.__setattr__(self, "staging", str(Path(self.staging).expanduser().resolve()))

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return self._address.shown if is_server(self.uri) else self.uri

    @property
    def database(self) -> str:
        """The database of the tables and views."""
        return self._address.database if is_server(self.uri) else DATABASE

    @property
    def _address(self) -> ServerAddress:
        return ServerAddress.parse(self.uri)

    @contextlib.contextmanager
    def session(self, *, alone: bool = False) -> Iterator[Session]:
        """`alone`: in process there is no other user of it."""
        if is_server(self.uri):
            yield server.session(self._address)
        else:
            with embedded.session(Path(self.uri), alone=alone) as local:
                yield local

    def owner_of(self, name: str) -> str | None:
        """An index says it in the comment of its journal, an alias in the record of its last promotion."""
        checked_name(name)
        with self.session() as session:
            if (found := layout.owner(session, self.database, name)) is not None:
                return found
            alias = journal.last(session, self.database, name)
            if alias is None:
                return "" if journal.comments(session, self.database, name) else None
        owner, serves = alias
        return owner or (self.owner_of(serves) if serves else None)

    def claim(self, name: str, *, of: str) -> None:
        with self.session(alone=True) as session:
            found = self.owner_of(name)
            if found is None:
                raise UserError(f"there is no {name!r} to be claimed", where=self.shown)
            owner = self.claimed(name, of, found)
            if layout.owner(session, self.database, name) is None:
                journal.claim(session, self.database, name, owner)
            elif found != owner:
                layout.own(session, self.database, name, owner)
            # On a server others may have done so at once.
            self.demand(name)

    def check(self) -> None:
        name = quoted(self.database, f"instep_check_{time.time_ns()}")
        try:
            with self.session() as session:
                session.command(f"CREATE DATABASE IF NOT EXISTS {quoted(self.database)} ENGINE = Atomic")
                probe(
                    partial(session.command, f"CREATE TABLE {name} (n UInt8) ENGINE = MergeTree ORDER BY n"),
                    partial(session.command, f"DROP TABLE IF EXISTS {name} SYNC"),
                )
        except Transient as error:
            raise Away(str(error), hint="Try again later.") from None
        staging.check(self._folder("check"))

    def _make(self, physical: str, specs: Sequence[TableSpec]) -> None:
        with self.session(alone=True) as session:
            layout.create(session, self.database, physical, specs, self.owner.id, alone=not is_server(self.uri))

    def exists(self, physical: str) -> bool:
        checked_name(physical)
        with self.session() as session:
            return layout.exists(session, self.database, physical)

    def specs(self, physical: str) -> Sequence[TableSpec]:
        with self.session() as session:
            return self._specs(session, physical)

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        with self.session() as session:
            return layout.drift(session, self.database, checked_name(physical), specs)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        with self.session(alone=True) as session:
            owner = self.demand(physical)
            if layout.owner(session, self.database, physical) not in (None, owner):
                layout.own(session, self.database, physical, owner)
            return self._journal(session, physical).fence(self.scope, epoch, marks)

    def epoch(self, physical: str) -> int:
        with self.session() as session:
            return self._journal(session, physical).epoch(self.scope)

    def writer(self, physical: str, base: int) -> TableWriter:
        return staging.ClickHouseTableWriter(self._folder(physical), self.specs(physical))

    def commit(
        self,
        physical: str,
        *,
        base: int,
        epoch: int,
        attempt: str,
        staged: Sequence[bytes],
        marks: Sequence[Mark],
    ) -> int:
        files = [file for each in staged for file in staging.decode(each)]
        with self.session(alone=True) as session:
            journal = self._journal(session, physical)
            version = journal.find(attempt)
            if version is None:
                journal.refuse(self.scope, epoch, marks, since=base)
                specs, values = self._specs(session, physical), guard_values(self.scope, epoch, base, marks)
                self._insert(specs, physical, attempt, [each for each in files if not each.moved], values)
                # After these: what came with them may have moved since.
                left = self._leaving(session, specs, physical, [each for each in files if each.moved])
                self._insert(specs, physical, attempt, left, values)
                files += left
                version = journal.commit(self.scope, epoch, attempt, marks)
        staging.remove([each.path for each in files])
        return version

    def _leaving(
        self, session: Session, specs: Sequence[TableSpec], physical: str, moved: Sequence[StagedFile]
    ) -> list[StagedFile]:
        """The rows of these that delete something, in files of their own."""
        found = []
        for spec in specs:
            if files := [each for each in moved if each.kind == spec.kind]:
                rows = reading.leaving(session, self.database, physical, spec, files, prefix=self.scope)
                found += staging.restaged(self._folder(physical), spec.kind, rows)
        return found

    def leaving(self, physical: str, staged: Sequence[bytes]) -> int:
        files = [file for each in staged for file in staging.decode(each) if file.kind == OWN and file.moved]
        if not files:
            return 0
        with self.session() as session:
            spec = self._spec(session, physical, OWN)
            return reading.count_moved(
                reading.leaving(session, self.database, physical, spec, files, prefix=self.scope), spec
            )

    def _insert(
        self,
        specs: Sequence[TableSpec],
        physical: str,
        attempt: str,
        files: Sequence[StagedFile],
        values: Mapping[str, Any],
    ) -> None:
        """One insert works on one core: several at once."""

        def insert(some: Sequence[StagedFile]) -> None:
            spec = spec_of(specs, some[0].kind)
            sql = self._insert_sql(physical, spec, f"{attempt}/{some[0].path.rpartition('/')[2]}")
            with self.session() as session:
                session.load(sql, layout.staged_structure(spec), [each.path for each in some], **values)

        at_once = min(os.cpu_count() or 1, _INSERTS)
        with ThreadPoolExecutor(at_once) as pool:
            for _ in pool.map(insert, staging.inserts(files, at_once)):
                pass

    def _insert_sql(self, physical: str, spec: TableSpec, token: str) -> str:
        """A repeated commit is recognised by `token`, insert by insert."""
        columns = ", ".join(quoted(each.name) for each in spec.all_columns)
        return (
            f"INSERT INTO {quoted(self.database, spec.table(physical))} ({columns}, {layout.BASE}) "
            f"SELECT {columns}, {{base:UInt64}} FROM {STAGED} "
            f"WHERE {guard(quoted(self.database, layout.journal(physical)))} "
            f"SETTINGS insert_deduplication_token = {literal(token)}, {_ONE_BLOCK}"
        )

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        with self.session() as session:
            return self._journal(session, physical).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        with self.session(alone=True) as session:
            self.demand(physical)
            for spec in self._specs(session, physical):
                table = spec.table(physical)
                parts = self._parts(session, table)
                if full and parts > 1:
                    session.command(f"OPTIMIZE TABLE {quoted(self.database, table)} FINAL")
                elif parts > _PARTS and not is_server(self.uri):
                    layout.merge(session, self.database, table)
            self._journal(session, physical).forget(self.keep_seconds)
        staging.sweep(self._staging, physical, self.keep_seconds * _WAVES)

    def _parts(self, session: Session, table: str) -> int:
        found = records(
            session,
            "SELECT count() AS n FROM system.parts WHERE database = {database:String} AND table = {table:String} "
            "AND active",
            database=self.database,
            table=table,
        )
        return int(found[0]["n"])

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        checked_name(alias)
        with self.session(alone=True) as session:
            specs = self._specs(session, physical) if physical is not None else ()
            if alias in layout.tables(session, self.database, alias):
                raise UserError(f"{alias!r} is a table, so it cannot be a view", where=self.shown, hint="Rename one.")
            if physical is not None:
                self.demand(physical)
            promotion = journal.Promotion(self.scope, epoch, physical)
            journal.promote(session, self.database, alias, promotion, specs, owner=self.demand(alias))

    def served(self, alias: str) -> str | None:
        checked_name(alias)
        with self.session() as session:
            return journal.served(session, self.database, alias)

    def rows(self, physical: str, kind: str = OWN) -> int:
        with self.session() as session:
            return reading.count(session, self.database, physical, self._spec(session, physical, kind))

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        with self.session() as session:
            spec = self._spec(session, physical, OWN)
            return reading.held(session, self.database, physical, spec, instance, prefix=prefix)

    def read(
        self,
        physical: str,
        kind: str = OWN,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        with self.session() as session:
            spec = self._spec(session, physical, kind)
            return reading.read(session, self.database, physical, spec, where=where or {}, columns=columns)

    def _delete(self, physical: str, epoch: int, *, prefix: str, but: str | None) -> None:
        with self.session(alone=True) as session:
            self.demand(physical)
            specs = self._specs(session, physical)
            self._journal(session, physical).refuse(self.scope, epoch, ())
            for spec in specs:
                reading.delete(session, self.database, physical, spec, prefix=prefix, but=but)

    def _indexes(self, prefix: str) -> list[str]:
        suffix = f"__{JOURNAL}"
        with self.session() as session:
            made = layout.tables(session, self.database, prefix)
        return [each.removesuffix(suffix) for each in made if each.endswith(suffix)]

    def _idle(self, physical: str) -> float:
        """Since something was recorded, or since the journal was made, if nothing was yet."""
        journal = layout.journal(physical)
        made = (
            "SELECT toDateTime64(metadata_modification_time, 6) FROM system.tables "
            "WHERE database = {database:String} AND name = {name:String}"
        )
        sql = (
            f"SELECT toFloat64(now64(6)) - toFloat64(if(count() = 0, ({made}), max(at))) AS idle "
            f"FROM {quoted(self.database, journal)}"
        )
        with self.session() as session:
            return float(records(session, sql, database=self.database, name=journal)[0]["idle"])

    def drop(self, physical: str) -> None:
        checked_name(physical)
        with self.session(alone=True) as session:
            self.demand(physical)
            layout.drop(session, self.database, physical)
        staging.remove_folder(self._folder(physical))

    def _specs(self, session: Session, physical: str) -> tuple[TableSpec, ...]:
        return layout.known_specs(session, self.database, checked_name(physical), self.shown)

    def _spec(self, session: Session, physical: str, kind: str) -> TableSpec:
        return spec_of(self._specs(session, physical), kind)

    def _journal(self, session: Session, physical: str) -> Journal:
        return Journal(session, self.database, checked_name(physical), shared=is_server(self.uri))

    def _folder(self, physical: str) -> str:
        return f"{self._staging}/{checked_name(physical)}"

    @property
    def _staging(self) -> str:
        return self.staging or f"{self.uri}/staging"
