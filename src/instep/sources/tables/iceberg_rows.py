"""Rows of an Iceberg table as documents, read without Spark: all of them, or what was changed between two snapshots.

A snapshot names its files, and what is deleted in them. So of two snapshots those files are compared that only one of
them has, or that are otherwise deleted from in the other: a row of the later one has come or stayed, and a key that
only the earlier one has is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.domain.keys import Key
from instep.domain.rows import DocumentColumns
from instep.domain.table_versions import COLUMNS, OTHER_COLUMNS, Between, TableVersion, Unfollowable
from instep.errors import InstepError, UserError
from instep.sources.tables.arrow_rows import ArrowRows
from instep.sources.tables.lake import WINDOW_BYTES, Lake, in_portions
from instep.sources.tables.lakes import Reasons, SignedRows, plain, plain_schema
from instep.sources.tables.row_documents import ROW_BYTES
from instep.sources.tables.row_keys import values_at

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

#: The number of a table without a snapshot.
_EMPTY: Final = -1
#: The name of a catalog that is given none, as pyiceberg has it.
_CATALOG: Final = "default"
_EQUALITY: Final = "Have the table's engine rewrite its delete files: rewrite_data_files in Spark."


@dataclass(frozen=True)
class IcebergRows(Lake["Table"]):
    """Implements `row_documents.LakeTable` and `lake_table.VersionedRows` for a table of a catalog. `options` are those
    of the catalog, as pyiceberg has them, and its `name`.
    """

    table: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    unit: ClassVar[str] = "snapshot"

    @property
    def text(self) -> str:
        return self.table

    def version(self) -> TableVersion:
        with self._told():
            table = self._opened()
            snapshot = table.current_snapshot()
            number = snapshot.snapshot_id if snapshot else _EMPTY
            replaced = _replaced(table, number)
            return TableVersion(f"{table.metadata.table_uuid}{COLUMNS + replaced if replaced else ''}", number)

    def demand_past(self, before: TableVersion) -> None:
        """Nothing: of a snapshot that is not there it is said where that is read. No two have one number."""

    def note(self) -> None:
        """There is nothing to be said."""

    def size(self) -> int:
        with self._told():
            return sum(each.file.record_count for each in self._opened().scan().plan_files())

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            tasks = list(table.scan().plan_files())
            names, usual = _marks(table, rows, tasks)
            for batch in _read(table, names, tasks):
                yield rows.listed(rows.undeleted(batch), usual)

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            tasks = table.scan(row_filter=_filter(columns, keys)).plan_files()
            yield from _read_keys(table, rows, keys, tasks)

    def changed(self, columns: DocumentColumns, between: Between) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            _demand_same_columns(table, between, columns.named)
            before, after = self._apart(table, between)
            for batch in _read(table, [*columns.key, *filter(None, (columns.deleted,))], before):
                yield _gone(rows, batch)
            names, usual = _marks(table, rows, after)
            for batch in _read(table, names, after):
                yield _there(rows, batch, usual)

    def rows_between(self, columns: DocumentColumns, keys: Sequence[Key], between: Between) -> Iterator[pa.RecordBatch]:
        with self._told():
            table = self._opened()
            rows = self._rows(table, columns)
            try:
                _demand_same_columns(table, between, columns.named)
                _, after = self._apart(table, between)
            except Unfollowable:
                yield from self.rows(columns, keys)
                return
            yield from _read_keys(table, rows, keys, after)

    def signed_portions(self, between: Between) -> int:
        """See `lake_table.VersionedRows`: files of both snapshots."""
        with self._told():
            return len(_signed_portions(*self._apart(self._opened(), between)))

    def signed(self, names: Sequence[str], between: Between, number: int) -> Iterator[SignedRows]:
        """See `lake_table.VersionedRows`."""
        with self._told():
            table = self._opened()
            _demand_same_columns(table, between, names)
            sign, tasks = _signed_portions(*self._apart(table, between))[number]
            for batch in _read(table, names, tasks):
                yield SignedRows(batch, np.full(batch.num_rows, sign, np.int64))

    def portions(self, version: int) -> int:
        """See `lake_table.VersionedRows`: its files."""
        with self._told():
            return len(_portions(self._tasks(self._opened(), version)))

    def portion(self, version: int, names: Sequence[str], number: int) -> Iterator[pa.RecordBatch]:
        """See `lake_table.VersionedRows`."""
        with self._told():
            table = self._opened()
            yield from _read(table, names, _portions(self._tasks(table, version))[number])

    def _apart(self, table: Table, between: Between) -> tuple[list[FileScanTask], list[FileScanTask]]:
        """The files that only the earlier snapshot has, and those of the later one alone, in order. Raises
        `Unfollowable`.
        """
        before, after = self._tasks(table, between.since), self._tasks(table, between.until)
        gone = [before[each] for each in sorted(before.keys() - after.keys())]
        return gone, [after[each] for each in sorted(after.keys() - before.keys())]

    def _tasks(self, table: Table, snapshot: int) -> dict[tuple[Any, ...], FileScanTask]:
        """The files of a snapshot, by their names and what is deleted in them. Raises `Unfollowable`."""
        if snapshot == _EMPTY:
            return {}
        if table.snapshot_by_id(snapshot) is None:
            raise Unfollowable(f"its snapshot {snapshot} has expired")
        try:
            tasks = list(table.scan(snapshot_id=snapshot).plan_files())
        except FileNotFoundError as error:
            said = Reasons(self.options).of(error)
            raise Unfollowable(f"files of its snapshot {snapshot} are not there: {said}") from None
        return {_identity(each): each for each in tasks}

    @staticmethod
    def _schema(table: Table) -> pa.Schema:
        return plain_schema(table.schema().as_arrow())

    def _opened(self) -> Table:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise UserError(
                "Iceberg tables are read by pyiceberg, which is not installed",
                where=self.text,
                hint="pip install 'instep[iceberg]'",
            ) from None
        options = {name: value for name, value in self.options.items() if name != "name"}
        return load_catalog(self.options.get("name", _CATALOG), **options).load_table(self.table)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the library says becomes a `UserError`."""
        try:
            yield
        except (InstepError, Unfollowable):
            raise
        except Exception as error:
            if type(error).__name__ in ("NoSuchTableError", "NoSuchNamespaceError"):
                hint = "Check `table` of the source, and its `catalog`."
                raise UserError("there is no such table in the catalog", where=self.text, hint=hint) from None
            said = Reasons(self.options).of(error)
            mend = _EQUALITY if "equality delete" in said else None
            raise UserError(f"it cannot be read: {said}", where=self.text, hint=mend) from None


def _demand_same_columns(table: Table, between: Between, names: Iterable[str]) -> None:
    """Raises `Unfollowable` where one of these columns was another one in the earlier snapshot."""
    if not _other_columns(table, between.since).keys().isdisjoint(names):
        raise Unfollowable(OTHER_COLUMNS)


def _other_columns(table: Table, snapshot: int) -> dict[str, int | None]:
    """Columns that a snapshot was written with, and that are other ones by now, or none: their ids now."""
    found = table.snapshot_by_id(snapshot)
    schema = None if found is None or found.schema_id is None else table.schemas().get(found.schema_id)
    if schema is None:
        return {}
    now = {each.name: each.field_id for each in table.schema().fields}
    return {each.name: now.get(each.name) for each in schema.fields if now.get(each.name) != each.field_id}


def _replaced(table: Table, snapshot: int) -> str:
    """A digest of columns that are other ones than in a snapshot, though there is none since; empty if none are."""
    found = sorted(_other_columns(table, snapshot).items())
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16] if found else ""


def _identity(task: FileScanTask) -> tuple[Any, ...]:
    deletes = sorted((each.file_path, each.record_count) for each in task.delete_files)
    return (task.file.file_path, *deletes)


def _portions(tasks: Mapping[tuple[Any, ...], FileScanTask]) -> list[list[FileScanTask]]:
    """The files of a snapshot, in order, in portions of not too few bytes: planning them takes time in each."""
    return in_portions([tasks[each] for each in sorted(tasks)], _bytes)


def _signed_portions(
    gone: Sequence[FileScanTask], come: Sequence[FileScanTask]
) -> list[tuple[int, list[FileScanTask]]]:
    """Files whose rows went (-1) and those whose rows came (1), in portions."""
    return [
        (sign, part) for sign, tasks in ((-1, gone), (1, come)) for part in in_portions(tasks, _bytes, WINDOW_BYTES)
    ]


def _bytes(task: FileScanTask) -> int:
    return task.file.file_size_in_bytes


def _read(table: Table, names: Sequence[str], tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """These columns, as the table has them now, of the rows of files."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = table.schema().select(*dict.fromkeys(names))
    return plain(ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches(tasks))


def _read_keys(
    table: Table, rows: ArrowRows, keys: Sequence[Key], tasks: Iterable[FileScanTask]
) -> Iterator[pa.RecordBatch]:
    for batch in rows.wanted(_read(table, rows.columns.named, tasks), rows.sets(keys)):
        if batch.num_rows:
            yield rows.read(rows.undeleted(batch))


def _marks(table: Table, rows: ArrowRows, tasks: Sequence[FileScanTask]) -> tuple[Sequence[str], int | None]:
    """The columns that tell whether rows have changed, and the bytes of a text that is not read for it, about."""
    version = rows.columns.version
    if version is not None:
        field_id = table.schema().find_field(version).field_id
        if all((each.file.null_value_counts or {}).get(field_id) == 0 for each in tasks):
            return rows.marks, ROW_BYTES
    return rows.columns.named, None  # Of a row without a version its content tells.


def _gone(rows: ArrowRows, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keys of rows that were there, as `LakeTable.changed` has them."""
    count = batch.num_rows
    keys = [rows.values(batch, name) for name in rows.columns.key]
    nothing: Any = pa.repeat("", count)
    numbers: Any = pa.array(np.zeros(count, np.int64))
    names = [*(f"c{at}" for at in range(len(keys) + 2)), "order", "rows"]
    return pa.RecordBatch.from_arrays([*keys, nothing, numbers, numbers, pa.array(-_present(rows, batch))], names)


def _there(rows: ArrowRows, batch: pa.RecordBatch, usual: int | None) -> pa.RecordBatch:
    """Rows that are there, as `LakeTable.changed` has them."""
    present: Any = pa.array(_present(rows, batch))
    return rows.listed(batch, usual).append_column("order", present).append_column("rows", present)


def _present(rows: ArrowRows, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """1 for a row, 0 for one that is marked as deleted."""
    deleted = rows.is_deleted(batch)
    present = np.ones(batch.num_rows, np.int64)
    return present if deleted is None else present - deleted.to_numpy(zero_copy_only=False).astype(np.int64)


def _filter(columns: DocumentColumns, keys: Sequence[Key]) -> Any:
    """The range in which the first column of the keys lies, so that files without are left out."""
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual

    values: list[Any] = values_at(keys)
    if not values or isinstance(values[0], bool) or not isinstance(values[0], int):
        return AlwaysTrue()
    name = columns.key[0]
    least: Any = GreaterThanOrEqual
    most: Any = LessThanOrEqual
    return And(least(name, values[0]), most(name, values[-1]))
