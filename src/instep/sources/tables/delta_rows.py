"""Rows of a Delta table as documents, read without Spark: all of them, or what was changed between two versions.

Changes come from the table's change data feed. Where it was not enabled, a commit says which files it took away and
which it added, and their rows come in place of changed ones: more is read, and nothing else is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.keys import Key
from instep.domain.rows import DocumentColumns
from instep.domain.table_versions import Between, TableVersion, Unfollowable
from instep.errors import InstepError, UserError
from instep.sources.tables.arrow_rows import ArrowRows
from instep.sources.tables.delta_changes import (
    CHANGE_TYPE,
    ChangeFile,
    actions_of,
    change_files,
    changed_rows,
    log_file,
    log_of,
)
from instep.sources.tables.folders import shown
from instep.sources.tables.lake import PORTION_BYTES, WINDOW_BYTES, Lake, in_portions
from instep.sources.tables.lakes import Reasons, SignedRows, is_there, last_changes, plain
from instep.sources.tables.row_documents import ROW_BYTES
from instep.sources.tables.row_keys import values_at
from instep.sources.tables.rows import row_uris

if TYPE_CHECKING:
    from deltalake import DeltaTable

ENABLED: Final = "delta.enableChangeDataFeed"
ENABLE: Final = f"ALTER TABLE … SET TBLPROPERTIES ('{ENABLED}' = 'true')"
_TYPE, _VERSION = CHANGE_TYPE, "_commit_version"
#: What a change data feed says of a row that was changed, as it was before: its key may have been another; and of one
#: that went.
_BEFORE, _GONE = "update_preimage", "delete"
#: Bytes of a commit that tell it apart from others.
_BEGINNING: Final = 65_536
#: What a table may be kept with so that its files do not say by themselves which rows it has.
_BESIDE_FILES: Final = ("deletionVectors", "columnMapping")


@dataclass(frozen=True)
class DeltaRows(Lake["DeltaTable"]):
    """Implements `row_documents.LakeTable` and `lake_table.VersionedRows` for the table at `path` (absolute, or a
    URL). The files of a window's changes are kept, and travel to tasks: to find them each commit is read.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _known: dict[tuple[str, Between], list[list[ChangeFile]] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    unit: ClassVar[str] = "version"

    @property
    def text(self) -> str:
        return shown(self.path)

    def version(self) -> TableVersion:
        with self._told():
            table = self._opened()
            number = table.version()
            return TableVersion(str(table.metadata().id), number, self._commit(table, number))

    def demand_past(self, before: TableVersion) -> None:
        """Raises `Unfollowable` where this version is none of its past, as far as its log tells."""
        with self._told():
            commit = self._commit(self._opened(), before.number)
        if commit and before.commit and commit != before.commit:
            raise Unfollowable(f"its version {before.number} is another one than the one that was read")

    def _commit(self, table: DeltaTable, number: int) -> str:
        """A digest of how a commit begins: it names files that no other has. Empty if it is not in the log any more."""
        try:
            with log_of(table, self.options).open_input_stream(log_file(number)) as file:
                return hashlib.sha256(file.read(_BEGINNING)).hexdigest()[:16]
        except OSError:
            return ""

    def note(self) -> str | None:
        """Something that a user may want to know: that more is read than has to be."""
        with self._told():
            if self._opened().metadata().configuration.get(ENABLED, "").lower() == "true":
                return None
        return (
            f"the change data feed of {self.text} is not enabled, so all rows of the files that a change rewrites are "
            f"compared: {ENABLE}"
        )

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            # Text is read only where nothing else tells whether a row has changed.
            marked = columns.version is not None and not self._nulls(table, columns.version)
            names, usual = (rows.marks, ROW_BYTES) if marked else (columns.named, None)
            for batch in plain(table.scan(columns=_once(names))):
                yield rows.listed(rows.undeleted(batch), usual)

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            asked = _predicate(columns, keys)
            wanted = rows.sets(keys)
            for batch in rows.wanted(plain(table.scan(columns=_once(columns.named), predicate=asked)), wanted):
                if batch.num_rows:
                    yield rows.read(rows.undeleted(batch))

    def changed(self, columns: DocumentColumns, between: Between) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            self._demand_sound(table, between)
        version = columns.version
        if version is not None and not self._has_nulls(table, version, between):
            for batch in self._feed(table, rows.marks, between, before=True):
                yield _events(rows, batch, ROW_BYTES)
        else:  # Of a row without a version its content tells.
            for batch in self._feed(table, columns.named, between, before=True):
                yield _events(rows, batch, None)

    def _has_nulls(self, table: DeltaTable, name: str, between: Between) -> bool:
        return any(batch.column(name).null_count for batch in self._feed(table, [name], between))

    def rows_between(self, columns: DocumentColumns, keys: Sequence[Key], between: Between) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
        try:
            # All of it, before the first is handed on: a version that is gone is found out in the midst.
            found = _last(rows, rows.wanted(self._feed(table, columns.named, between), rows.sets(keys)))
        except Unfollowable:
            yield from self.rows(columns, keys)
            return
        yield from map(rows.read, found)

    def signed_portions(self, between: Between) -> int:
        """See `lake_table.VersionedRows`: files of its commits. Where these do not say it all, all is one portion."""
        with self._told():
            table = self._opened()
            self._demand_sound(table, between)
            found = self._change_files(table, between)
        return 1 if found is None else len(found)

    def signed(self, names: Sequence[str], between: Between, number: int) -> Iterator[SignedRows]:
        """See `lake_table.VersionedRows`."""
        with self._told():
            table = self._opened()
            self._demand_sound(table, between)
            portions = self._change_files(table, between)
        if portions is None:
            for batch in self._feed(table, names, between, before=True):
                yield SignedRows(batch.select(_once(names)), _signs(batch.column(_TYPE)))
            return
        with self._told(), self._kept(between.until):
            files, schema = log_of(table, self.options), self._schema(table)
            for each in portions[number]:
                for batch, said in changed_rows(files, schema, _once(names), each):
                    signs = np.full(batch.num_rows, each.sign) if said is None else _signs(said)
                    yield SignedRows(batch, signs)

    def _change_files(self, table: DeltaTable, between: Between) -> list[list[ChangeFile]] | None:
        """The files of the changes in portions; None where the files do not say it all."""
        asked = (str(table.metadata().id), between)
        known: dict[Any, list[list[ChangeFile]] | None] = dict(self._known)
        if asked in known:
            return known[asked]
        files = self._files_between(table, between) if _plain_files(table) else None
        found = None if files is None else in_portions(files, lambda each: each.size, WINDOW_BYTES)
        self._known.clear()
        self._known[asked] = found
        return found

    def _files_between(self, table: DeltaTable, between: Between) -> list[ChangeFile] | None:
        partitions = table.metadata().partition_columns
        return change_files(log_of(table, self.options), self._schema(table), partitions, between)

    def portions(self, version: int) -> int:
        """See `lake_table.VersionedRows`: its files. Where these do not say it all, all rows are one portion."""
        with self._told(), self._kept(version):
            table = self._opened(version)
            return len(_portions(table)) if _files(table) else 1

    def portion(self, version: int, names: Sequence[str], number: int) -> Iterator[pa.RecordBatch]:
        """See `lake_table.VersionedRows`."""
        with self._told(), self._kept(version):
            table = self._opened(version)
            if not _files(table):
                yield from plain(table.scan(columns=_once(names)))
                return
            schema = pa.schema(cast("Any", table.schema().to_arrow()))
            for fragment in _portions(table)[number]:
                yield from plain(fragment.to_batches(schema=schema, columns=_once(names)))

    @contextmanager
    def _kept(self, version: int) -> Iterator[None]:
        """Files that are not there any more are those of a version that is gone."""
        try:
            yield
        except FileNotFoundError as error:
            said = Reasons(self.options).of(error)
            raise Unfollowable(f"files of its version {version} are not there: {said}") from None
        except Exception as error:
            if type(error).__name__ != "DeltaError" and "not found" not in str(error).lower():
                raise
            said = Reasons(self.options).of(error)
            raise Unfollowable(f"its version {version} is not there: {said}") from None

    def _feed(
        self, table: DeltaTable, names: Sequence[str], between: Between, *, before: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Rows that came, and those that went, in these versions; with rows as they were before they were changed."""
        columns = [*_once(names), _TYPE, _VERSION]
        try:
            reader = table.load_cdf(between.since + 1, between.until, columns=columns)
            for batch in plain(reader):
                then: Any = pc.equal(batch.column(_TYPE), pa.scalar(_BEFORE))
                yield batch if before else batch.filter(pc.invert(then))
        except InstepError:
            raise
        except Exception as error:
            said = Reasons(self.options).of(error)
            raise Unfollowable(f"its versions {between.since + 1} to {between.until} are not there: {said}") from None

    def _demand_sound(self, table: DeltaTable, between: Between) -> None:
        """Raises `Unfollowable` for a version that went back, and for commits whose deletion vectors take rows away, as
        Spark makes them even where the feed is enabled: deltalake would read their files as a whole in place of it.
        """
        if min(table.version(), between.until) < between.since:
            raise Unfollowable(f"its version went back from {between.since} to {table.version()}")
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return
        log = log_of(table, self.options)
        for version in range(between.since + 1, between.until + 1):
            actions = actions_of(log, version)
            files = [each[kind] for each in actions for kind in ("add", "remove") if kind in each]
            fed = any("cdc" in each for each in actions)
            if not fed and any(each.get("deletionVector") and each.get("dataChange", True) for each in files):
                raise Unfollowable(f"its version {version} takes rows away by deletion vectors, and no feed says which")

    def size(self) -> int:
        with self._told():
            found: Any = pa.table(self._opened().get_add_actions())["num_records"]
        return int(pc.sum(found).as_py() or 0)

    @staticmethod
    def _nulls(table: DeltaTable, name: str) -> bool:
        """Whether some row may have none, by the statistics of files."""
        actions = pa.table(table.get_add_actions(flatten=True))
        if not actions.num_rows:
            return False
        if f"null_count.{name}" not in actions.column_names:
            return True
        counts: Any = actions[f"null_count.{name}"]
        return bool(counts.null_count or pc.sum(counts).as_py())

    @staticmethod
    def _schema(table: DeltaTable) -> pa.Schema:
        found: Any = table.schema().to_arrow()
        return pa.schema(found)

    def _opened(self, version: int | None = None) -> DeltaTable:
        try:
            from deltalake import DeltaTable
        except ImportError:
            raise UserError(
                "Delta tables are read by deltalake, which is not installed",
                where=self.text,
                hint="pip install 'instep[delta]'",
            ) from None
        return DeltaTable(self.path, version=version, storage_options=dict(self.options) or None)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the library says becomes a `UserError`."""
        try:
            yield
        except (InstepError, Unfollowable):
            raise
        except Exception as error:
            if type(error).__name__ == "TableNotFoundError":
                hint = "Check the path of the source: it is the folder in which _delta_log lies."
                raise UserError("there is no Delta table", where=self.text, hint=hint) from None
            raise UserError(f"it cannot be read: {Reasons(self.options).of(error)}", where=self.text) from None


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _files(table: DeltaTable) -> list[str]:
    """The files of a version, in order; none if they do not say by themselves which rows it has."""
    return sorted(table.file_uris()) if _plain_files(table) else []


def _plain_files(table: DeltaTable) -> bool:
    """Whether files say by themselves which rows they have."""
    if not set(_BESIDE_FILES).isdisjoint(table.protocol().reader_features or ()):
        return False
    return table.metadata().configuration.get("delta.columnMapping.mode", "none") == "none"


def _portions(table: DeltaTable) -> list[list[Any]]:
    """The fragments of a version, in order, in portions of not too few bytes: finding them takes time in each."""
    actions: Any = pa.table(cast("Any", table.get_add_actions(flatten=True)))
    names = (str(each).rpartition("/")[2] for each in actions["path"].to_pylist())
    sizes = dict(zip(names, actions["size_bytes"].to_pylist(), strict=True))
    dataset: Any = table.to_pyarrow_dataset(schema=pa.schema(cast("Any", table.schema().to_arrow())))
    fragments = sorted(dataset.get_fragments(), key=lambda each: str(each.path))
    return in_portions(fragments, lambda each: sizes.get(str(each.path).rpartition("/")[2], PORTION_BYTES))


def _events(rows: ArrowRows, batch: pa.RecordBatch, usual: int | None) -> pa.RecordBatch:
    """A batch of a feed as `LakeTable.changed` has it."""
    came = _came(batch.column(_TYPE))
    numbers: Any = pc.if_else(came, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    if (deleted := rows.is_deleted(batch)) is not None:
        numbers = pc.if_else(deleted, pa.scalar(0, pa.int64()), numbers)
    listed = rows.listed(batch, usual)
    return listed.append_column("order", _order(rows, batch)).append_column("rows", numbers)


def _came(types: pa.Array[Any]) -> Any:
    return pc.invert(pc.is_in(types, value_set=pa.array([_BEFORE, _GONE])))


def _signs(types: pa.Array[Any]) -> npt.NDArray[np.int64]:
    return np.where(_came(types).to_numpy(zero_copy_only=False), 1, -1)


def _order(rows: ArrowRows, batch: pa.RecordBatch) -> Any:
    """Twice the version, and one more for a row that is there."""
    there = _came(batch.column(_TYPE))
    if (deleted := rows.is_deleted(batch)) is not None:
        there = pc.and_(there, pc.invert(deleted))
    doubled = pc.multiply(batch.column(_VERSION).cast(pa.int64()), pa.scalar(2))
    return pc.add(doubled, there.cast(pa.int64()))


def _last(rows: ArrowRows, batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows of the last change of each key, if that is no deletion."""
    found = list(batches)
    if not found:
        return []
    (batch,) = pa.Table.from_batches(found).combine_chunks().to_batches() or [found[0]]
    orders = _order(rows, batch)
    uris = row_uris("", [rows.values(batch, name) for name in rows.columns.key])
    return [batch.filter(pc.and_(last_changes(uris, orders), is_there(orders)))]


def _predicate(columns: DocumentColumns, keys: Sequence[Key]) -> str | None:
    """The range in which the first column of the keys lies, so that files without are left out; None: all are read."""
    values: list[Any] = values_at(keys)
    name = '"' + columns.key[0].replace('"', '""') + '"'
    if not values or isinstance(values[0], bool) or not isinstance(values[0], int):
        return None
    return f"{name} BETWEEN {values[0]} AND {values[-1]}"
